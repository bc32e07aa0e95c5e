# SPDX-License-Identifier: Apache-2.0
"""The two examples against a command that answers with figures of our own.

    python -m unittest discover examples
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent


def run_of(gbps, **settings):
    return {"gbps": gbps, "bytes": 1 << 30, "settings": settings, "latency": {"p50": 0.001, "p99": 0.01},
            "cpu": {"seconds_per_gib": 0.1}, "cache": {"verdict": "storage"}, "share": {"name": "storage", "ceiling_gbps": 4, "ratio": gbps / 4}}


def sweep(name, points, device="cuda"):
    return {"machine": {"cpus": 16, "device": {"id": device, "kind": device, "model": "M"}}, "runs": [run for _, _, run in points],
            "sweeps": [{"id": name, "question": f"Q {name}", "answer": f"A {name}",
                        "points": [{"series": "s", "x": x, "label": label, "run": i} for i, (x, label, _) in enumerate(points)]}]}


ANSWERS = {
    "doctor": {"verdict": {"direct": "no", "route": "staged", "summary": "no direct path", "cause": {"title": "nvidia-fs", "observed": "not loaded"}}, "findings": []},
    "pattern": sweep("pattern", [(0, "sequential", run_of(3.0, pattern="sequential")), (1, "random", run_of(1.0, pattern="random"))]),
    "workers": sweep("workers", [(n, str(n), run_of(min(n, 3.9))) for n in (1, 2, 4, 8)]),
    "memory": sweep("memory", [(0, "pageable", run_of(2, memory="pageable")), (1, "pinned", run_of(3, memory="pinned"))]),
    "block-size": sweep("block-size", [(4096, "4 KiB", run_of(0.1)), (1 << 20, "1 MiB", run_of(3.0)), (4 << 20, "4 MiB", run_of(3.1))]),
    "prefetch": sweep("prefetch", [(0, "0", run_of(1.0)), (2, "2", run_of(3.0)), (4, "4", run_of(3.0))]),
    "ceilings": {"limits": [{"id": "storage_read", "name": "storage", "gbps": 3.4}, {"id": "h2d_pinned", "name": "link", "gbps": 50}]},
    "train": {"train": {"step": "spin kernel on cuda:0", "batch": 8, "sample_bytes": 4 << 20, "batch_bytes": 32 << 20, "workers": 1, "prefetch": 2,
                        "memory": "pinned", "route": "direct", "isolated_seconds": 0.004, "copy_seconds": 0.001, "target_seconds": 0.005,
                        "idle_seconds": 0, "au": 0.99, "gbps": 6.6, "bound": "gpu-bound", "why": "it is busy", "next": ["nothing"]}},
}

COMMAND = """#!{python}
import json, sys
name = "doctor" if sys.argv[1] == "doctor" else sys.argv[3] if sys.argv[2] == "sweep" else sys.argv[2]
if "--json" not in sys.argv:
    sys.exit("no --json")
print(json.dumps(json.load(open({answers!r}))[name]))
sys.exit(1 if name == "doctor" else 0)
"""


class Usage(unittest.TestCase):
    """An example without its arguments says what it wants, and shows no traceback."""

    def test_without_arguments(self):
        for example in ("load.py", "stream.py", "gpudirect.py"):
            environment = {**os.environ, "PYTHONPATH": str(HERE.parent / "python")}
            done = subprocess.run([sys.executable, HERE / example], env=environment, capture_output=True, text=True)
            self.assertEqual(done.returncode, 1, example)
            self.assertTrue(done.stderr.startswith("usage: " + example), done.stderr)


class Examples(unittest.TestCase):
    def call(self, example, answers, *args):
        with tempfile.TemporaryDirectory() as tmp:
            cli, file = pathlib.Path(tmp, "nebulaio"), pathlib.Path(tmp, "answers.json")
            file.write_text(json.dumps(answers))
            cli.write_text(COMMAND.format(python=sys.executable, answers=str(file)))
            cli.chmod(0o700)
            return subprocess.run([sys.executable, HERE / example, tmp, *args], env={**os.environ, "NEBULAIO_CLI": str(cli)}, capture_output=True, text=True)

    def test_gpudirect(self):
        done = self.call("gpudirect_storage_example.py", ANSWERS, "--quick")
        self.assertEqual(done.returncode, 0, done.stderr)
        text = " ".join(done.stdout.split())
        for part in ("no direct path", "nvidia-fs: not loaded", "sequential reads are 3.0 times as fast", "num_workers=4", "pin_memory=True: batches reach the GPU 1.5 times", "75 % of storage"):
            self.assertIn(part, text)

    def test_optimization(self):
        done = self.call("storage_io_optimization.py", ANSWERS, "--quick")
        self.assertEqual(done.returncode, 0, done.stderr)
        text = " ".join(done.stdout.split())
        for part in ("storage (3.40 GB/s) is the narrow place", "reads of 1 MiB and more", "2 batches ahead", "gpu-bound: it is busy",
                     "DataLoader(num_workers=1, prefetch_factor=2, pin_memory=True", "no setting is enough"):
            self.assertIn(part, text)

    def test_what_is_missing_is_named(self):
        for example, name, path, field in (
            ("gpudirect_storage_example.py", "doctor", ["verdict"], "verdict"),
            ("gpudirect_storage_example.py", "pattern", ["runs"], "runs"),
            ("gpudirect_storage_example.py", "memory", ["sweeps"], "sweeps"),
            ("storage_io_optimization.py", "ceilings", ["limits"], "limits"),
            ("storage_io_optimization.py", "train", ["train", "isolated_seconds"], "isolated_seconds"),
        ):
            answers = json.loads(json.dumps(ANSWERS))
            at = answers[name]
            for part in path[:-1]:
                at = at[part]
            del at[path[-1]]
            done = self.call(example, answers)
            self.assertEqual(done.returncode, 1, example)
            self.assertIn(f"has no field '{field}'", done.stderr)
            self.assertNotIn("Traceback", done.stderr)

    def test_no_command_and_no_folder(self):
        for env, args, text in (({"NEBULAIO_CLI": "/nowhere/nebulaio"}, [], "NEBULAIO_CLI names /nowhere/nebulaio"), ({}, ["/nowhere"], "is not a folder")):
            done = subprocess.run([sys.executable, HERE / "storage_io_optimization.py", *args], env={**os.environ, **env}, capture_output=True, text=True)
            self.assertEqual(done.returncode, 1)
            self.assertIn(text, done.stderr)


if __name__ == "__main__":
    unittest.main()
