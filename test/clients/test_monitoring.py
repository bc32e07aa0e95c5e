# SPDX-License-Identifier: Apache-2.0
"""The alerts and the dashboard use metrics and labels that a server really has."""

import json
import os
import re
import signal
import subprocess
import urllib.request

import promql_parser
import pytest
import yaml
from conftest import ACCESS, ROOT, SECRET, wait_for_endpoint

PLACE = ROOT / "packaging" / "monitoring"
OF_PROMETHEUS = {"job", "instance", "le"}  # labels that the server does not give
SUFFIXES = ("_bucket", "_sum", "_count")


def rules() -> list[dict]:
    return [rule for group in yaml.safe_load((PLACE / "prometheus-alerts.yml").read_text())["groups"]
            for rule in group["rules"]]


def panels() -> list[dict]:
    return json.loads((PLACE / "grafana-dashboard.json").read_text())["panels"]


def expressions() -> list[tuple[str, str]]:
    """Return each expression with the name of the alert or panel that uses it. Variables of Grafana have values."""
    found = [(rule["alert"], rule["expr"]) for rule in rules()]
    for panel in panels():
        for target in panel.get("targets", []):
            found.append((panel["title"], target["expr"].replace("$__rate_interval", "5m").replace("$job",
                                                                                                   ".*").replace(
                                                                                                       "$instance",
                                                                                                       ".*")))
    return found


@pytest.fixture(scope="module")
def metrics(server, tmp_path_factory):
    """The metrics of a server with an upstream bucket, a cluster and a door: the values of each label, by name."""
    if "S3_ENDPOINT" in os.environ:
        pytest.skip("a server that was given has metrics of its own")
    place = tmp_path_factory.mktemp("monitored")
    program = os.environ.get("NEBULAIO_CLI", str(ROOT / "bin" / "nebulaio"))
    (place / "key").write_bytes(subprocess.run([program, "cluster", "key"], check=True, capture_output=True,
                                               timeout=60).stdout)
    (place / "key").chmod(0o600)
    upstream = {"endpoint": server.endpoint, "bucket": "monitored", "access_key_env": "UP_ACCESS",
                "secret_key_env": "UP_SECRET"}
    settings = {
        "data": str(place / "data"), "address": "127.0.0.1:0", "console_address": "127.0.0.1:0",
        "cache": {"directory": str(place / "cache"), "capacity": "1GiB"},
        "cluster": {"address": "127.0.0.1:0", "key_file": str(place / "key")},
        "gpudirect": {"enabled": True, "socket": str(place / "door")},
        "upstream": {"models": upstream},
    }
    (place / "nebulaio.yaml").write_text(yaml.safe_dump(settings))
    keys = {"NEBULAIO_ROOT_USER": ACCESS, "NEBULAIO_ROOT_PASSWORD": SECRET, "UP_ACCESS": server.access,
            "UP_SECRET": server.secret}
    with open(place / "log", "wb") as log:
        process = subprocess.Popen(
            [program, "server", "--json", "--config", str(place / "nebulaio.yaml")], env=os.environ | keys,
            stdout=subprocess.PIPE, stderr=log
        )
    try:
        endpoint = wait_for_endpoint(process, 60)
        model = str(place / "model.safetensors")
        subprocess.run([program, "generate", "--shapes", "tiny", "--out", model], check=True, capture_output=True,
                       timeout=60)
        client = os.environ | {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET}
        for argv in (["mb", "s3://own"], ["cp", model, "s3://own/model"],
                     ["load", "s3://own/model", "--device", "host", "--door", "require"]):
            subprocess.run([program, *argv, "--endpoint", endpoint], env=client, check=True, capture_output=True,
                           timeout=60)
        console = next(line["console"] for line in map(json.loads, open(place / "log")) if line["msg"] == "ready")
        yield scrape(console)
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
        assert process.wait(60) == 0, (place / "log").read_text()[-4000:]
    finally:
        process.kill()
        process.wait()


def scrape(console: str) -> dict[str, dict[str, set[str]]]:
    found: dict[str, dict[str, set[str]]] = {"up": {}}
    with urllib.request.urlopen(console + "/metrics", timeout=60) as reply:
        for line in reply.read().decode().splitlines():
            if match := re.match(r"([a-z_0-9]+)(\{[^}]*\})? ", line):
                labels = found.setdefault(match[1], {})
                for name, value in re.findall(r'(\w+)="([^"]*)"', match[2] or ""):
                    labels.setdefault(name, set()).add(value)
    return found


def walk(expression):
    """Yield an expression and all expressions in it."""
    yield expression
    for name in ("lhs", "rhs", "expr", "param", "vector_selector", "args"):
        inner = getattr(expression, name, None)
        for one in inner if isinstance(inner, list) else [inner]:
            if isinstance(one, promql_parser.Expr):
                yield from walk(one)


def unknown(name: str, expression: str, metrics: dict[str, dict[str, set[str]]]) -> list[str]:
    """Return what an expression names and a server does not have."""
    wrong: list[str] = []
    parts = list(walk(promql_parser.parse(expression)))
    labels: set[str] = set()
    for part in (part for part in parts if isinstance(part, promql_parser.VectorSelector)):
        if part.name not in metrics:
            wrong.append(f"{name}: no metric {part.name}")
            continue
        labels |= metrics[part.name].keys()
        for matcher in part.matchers.matchers:
            if matcher.name in OF_PROMETHEUS:
                continue
            values = metrics[part.name].get(matcher.name)
            if values is None:
                wrong.append(f"{name}: {part.name} has no label {matcher.name}")
            elif part.name != "nebulaio_s3_requests_total" and not set(matcher.value.split("|")) <= values:
                wrong.append(f"{name}: {part.name} has no {matcher.name} of {matcher.value}")
    for part in parts:
        modifier = getattr(part, "modifier", None)
        if isinstance(part, promql_parser.AggregateExpr) and modifier is not None:
            wrong += [f"{name}: {expression} sums by {one}" for one in set(modifier.labels) - labels - OF_PROMETHEUS]
    return wrong


def test_every_expression_finds_metrics(metrics):
    all_expressions = expressions()
    assert len(all_expressions) > 40
    assert [said for name, expression in all_expressions for said in unknown(name, expression, metrics)] == []


@pytest.mark.parametrize(
    "expression", ["nebulaio_redy == 0", 'nebulaio_cluster_members{stat="lost"}',
                   'nebulaio_cluster_members{state="lots"}', "sum by (rute) (nebulaio_gpudirect_reported_bytes_total)"]
)
def test_a_wrong_expression_is_found(metrics, expression):
    assert unknown("x", expression, metrics)


def test_alerts_say_what_to_do():
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names)) > 10
    guide = (ROOT / "docs" / "operate.md").read_text()
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"] and rule["annotations"]["fix"].endswith(".")
        assert f"`{rule['alert']}`" in guide


def test_the_dashboard_has_no_collisions():
    """Each panel has a number, a place of its own, and a description."""
    taken: dict[tuple[int, int], str] = {}
    numbers = [panel["id"] for panel in panels()]
    assert len(numbers) == len(set(numbers))
    for panel in panels():
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        assert panel["type"] == "row" or panel["description"].endswith("."), panel["title"]
        for cell in ((x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])):
            assert taken.setdefault(cell, panel["title"]) == panel["title"]
