# SPDX-License-Identifier: Apache-2.0
"""The two examples against a command that answers with figures of our own.

    python -m unittest discover examples
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import nebulaio_bench

HERE = pathlib.Path(__file__).resolve().parent
TORCH = importlib.util.find_spec("torch") is not None


def run_of(gbps, **settings):
    return {"gbps": gbps, "bytes": 1 << 30, "settings": settings, "latency": {"p50": 0.001, "p99": 0.01},
            "cpu": {"seconds_per_gib": 0.1}, "cache": {"verdict": "storage"},
            "share": {"name": "storage", "ceiling_gbps": 4, "ratio": gbps / 4}}


def sweep(name, points, device="cuda"):
    return {"machine": {"cpus": 16, "device": {"id": device, "kind": device, "model": "M"}},
            "runs": [run for _, _, run in points],
            "sweeps": [{"id": name, "question": f"Q {name}", "answer": f"A {name}",
                        "points": [{"series": "s", "x": x, "label": label, "run": i}
                                   for i, (x, label, _) in enumerate(points)]}]}


ANSWERS = {
    "doctor": {"verdict": {"direct": "no", "route": "staged", "summary": "no direct path",
                           "cause": {"title": "nvidia-fs", "observed": "not loaded"}}, "findings": []},
    "pattern": sweep("pattern", [(0, "sequential", run_of(3.0, pattern="sequential")),
                                 (1, "random", run_of(1.0, pattern="random"))]),
    "workers": sweep("workers", [(n, str(n), run_of(min(n, 3.9))) for n in (1, 2, 4, 8)]),
    "memory": sweep("memory", [(0, "pageable", run_of(2, memory="pageable")),
                               (1, "pinned", run_of(3, memory="pinned"))]),
    "block-size": sweep("block-size", [(4096, "4 KiB", run_of(0.1)), (1 << 20, "1 MiB", run_of(3.0)),
                                       (4 << 20, "4 MiB", run_of(3.1))]),
    "prefetch": sweep("prefetch", [(0, "0", run_of(1.0)), (2, "2", run_of(3.0)), (4, "4", run_of(3.0))]),
    "ceilings": {"limits": [{"id": "storage_read", "name": "storage", "gbps": 3.4},
                            {"id": "h2d_pinned", "name": "link", "gbps": 50}]},
    "train": {"train": {"step": "spin kernel on cuda:0", "batch": 8, "sample_bytes": 4 << 20, "batch_bytes": 32 << 20,
                        "workers": 1, "prefetch": 2,
                        "memory": "pinned", "route": "direct", "isolated_seconds": 0.004, "copy_seconds": 0.001,
                        "target_seconds": 0.005,
                        "idle_seconds": 0, "au": 0.99, "gbps": 6.6, "bound": "compute-bound", "why": "it is busy",
                        "next": ["nothing"]}},
}

COMMAND = """#!{python}
import json, sys
name = "doctor" if sys.argv[1] == "doctor" else sys.argv[3] if sys.argv[2] == "sweep" else sys.argv[2]
if "--json" not in sys.argv:
    sys.exit("no --json")
print(json.dumps(json.load(open({answers!r}))[name]))
sys.exit(1 if name == "doctor" else 0)
"""


def point(series, workers, gbps, verdict="storage", cpu=0.1):
    run = {"gbps": gbps, "cache": {"verdict": verdict},
           "settings": {"cache": "warm" if verdict == "memory" else "cold"}, "cpu": {"seconds_per_gib": cpu}}
    return series, workers, str(workers), run


class Advice(unittest.TestCase):
    """The advised number of workers comes from reads of storage, and is bounded by what was measured and by processors."""

    # Two processors of a machine whose page cache answers faster with each worker.
    COLD = [point("from storage", n, g) for n, g in ((1, 3.0), (2, 3.6), (4, 4.4), (8, 4.6), (16, 4.3))]
    WARM = [point("from the page cache", n, 1.1 * n, "memory") for n in (1, 2, 4, 8, 16)]

    def test_cached_rates_do_not_count(self):
        workers, why = nebulaio_bench.advise_workers(self.COLD + self.WARM, 2)
        self.assertEqual(workers, 2)
        self.assertEqual(nebulaio_bench.advise_workers(self.COLD, 2), (workers, why))

    def test_workers_that_wait_may_be_more_than_processors(self):
        waiting = [point("from storage", n, min(n, 8) * 0.5, cpu=0.01) for n in (1, 2, 4, 8, 16)]
        self.assertEqual(nebulaio_bench.advise_workers(waiting, 2)[0], 8)

    def test_never_above_what_was_measured_best(self):
        for top in range(5):
            for shape in ((1, 2, 3, 4, 5), (1, 1, 1, 1, 1), (5, 4, 3, 2, 1), (1, 3, 2, 3, 1)):
                rates = [g + (10 if i == top else 0) for i, g in enumerate(shape)]
                points = [point("from storage", 1 << i, g) for i, g in enumerate(rates)]
                for cpus in (1, 2, 64):
                    workers, _ = nebulaio_bench.advise_workers(points + self.WARM, cpus)
                    self.assertLessEqual(workers, 1 << top)

    def test_never_above_processors_where_they_are_the_limit(self):
        busy = [point("from storage", n, min(n, 8) * 0.5, cpu=2.0) for n in (1, 2, 4, 8, 16)]
        for cpus in (1, 2, 4):
            workers, why = nebulaio_bench.advise_workers(busy, cpus)
            self.assertEqual(workers, cpus)
            self.assertIn(f"not above the {cpus} processors", " ".join(why))

    def test_a_small_gain_is_no_reason_for_more_workers_than_processors(self):
        rates = ((1, 3.27), (2, 2.93), (4, 3.88), (8, 1.08), (16, 0.32), (32, 4.15))  # of a disk that others use, too
        workers, why = nebulaio_bench.advise_workers([point("from storage", n, g) for n, g in rates], 2)
        self.assertEqual(workers, 1)
        self.assertIn("only 1.19 times as fast", " ".join(why))

    def test_with_cached_rates_alone_it_says_so_and_stays_at_the_processors(self):
        workers, why = nebulaio_bench.advise_workers(self.WARM, 2)
        self.assertEqual(workers, 2)
        self.assertIn("holds for cached data alone", " ".join(why))


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
            if "--torch" not in args:
                args = (*args, "--torch", "no")
            done = subprocess.run([sys.executable, HERE / example, tmp, *args],
                                  env={**os.environ, "NEBULAIO_CLI": str(cli)}, capture_output=True, text=True)
            self.assertEqual(sorted(os.listdir(tmp)), ["answers.json", "nebulaio"], "an example leaves no file behind")
            return done

    def test_gpudirect(self):
        done = self.call("gpudirect_storage_example.py", ANSWERS, "--quick")
        self.assertEqual(done.returncode, 0, done.stderr)
        text = " ".join(done.stdout.split())
        for part in ("no direct path", "nvidia-fs: not loaded", "sequential reads are 3.0 times as fast",
                     "num_workers=4", "pin_memory=True: batches reach the GPU 1.5 times", "75 % of storage"):
            self.assertIn(part, text)

    def test_optimization(self):
        done = self.call("storage_io_optimization.py", ANSWERS, "--quick")
        self.assertEqual(done.returncode, 0, done.stderr)
        text = " ".join(done.stdout.split())
        for part in ("storage (3.40 GB/s) is the narrow place", "reads of 1 MiB and more", "2 batches ahead",
                     "compute-bound: it is busy",
                     "DataLoader(num_workers=1, prefetch_factor=2, pin_memory=True", "no setting is enough"):
            self.assertIn(part, text)

    def test_more_workers_than_help_are_not_advised(self):
        """A step that needs many workers gets no more than the reads of storage justify, whatever the page cache gives."""
        answers = json.loads(json.dumps(ANSWERS))
        answers["train"]["train"].update(workers=4, isolated_seconds=0.04)
        points = [(n, str(n), run_of(2.0 if n > 1 else 1.5)) for n in (1, 2, 4, 8)]
        cached = [(n, str(n), {**run_of(2.0 * n), "cache": {"verdict": "memory"}}) for n in (1, 2, 4, 8)]
        answers["workers"] = sweep("workers", points + cached)
        for each in answers["workers"]["sweeps"][0]["points"][4:]:
            each["series"] = "from the page cache"
        done = self.call("storage_io_optimization.py", answers, "--quick")
        self.assertEqual(done.returncode, 0, done.stderr)
        text = " ".join(done.stdout.split())
        self.assertIn("DataLoader(num_workers=2,", text)
        self.assertIn("32 would be needed", text)
        done = self.call("gpudirect_storage_example.py", answers, "--quick")
        self.assertIn("num_workers=2: 2.00 GB/s with 2", " ".join(done.stdout.split()))

    def test_without_torch_the_output_says_so(self):
        for example in ("gpudirect_storage_example.py", "storage_io_optimization.py"):
            for choice, text in (("no", "as --torch no asks"),
                                 *(() if TORCH else (("auto", "No DataLoader is measured: No module named 'torch'"),))):
                done = self.call(example, ANSWERS, "--quick", "--torch", choice)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn(text, " ".join(done.stdout.split()))

    @unittest.skipIf(TORCH, "torch is installed")
    def test_torch_is_required_where_it_is_missing(self):
        done = self.call("storage_io_optimization.py", ANSWERS, "--quick", "--torch", "require")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--torch require: No module named 'torch'", done.stderr)

    @unittest.skipUnless(TORCH, "torch is not installed; make test-torch runs it")
    def test_real_dataloaders(self):
        for example in ("gpudirect_storage_example.py", "storage_io_optimization.py"):
            done = self.call(example, ANSWERS, "--quick", "--size", "16MiB", "--torch", "require")
            self.assertEqual(done.returncode, 0, done.stderr)
            text = " ".join(done.stdout.split())
            self.assertIn("A real DataLoader: batches of 16 samples", text)
            self.assertIn("The search took", text)
        # The last output is that of storage_io_optimization.py.
        self.assertIn("DataLoader(num_workers=", text)
        self.assertRegex(text, "=> (storage|cpu|copy|compute)-bound: of ")

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
        for env, args, text in (({"NEBULAIO_CLI": "/nowhere/nebulaio"}, [], "NEBULAIO_CLI names /nowhere/nebulaio"),
                                ({}, ["/nowhere"], "is not a folder")):
            done = subprocess.run([sys.executable, HERE / "storage_io_optimization.py", *args],
                                  env={**os.environ, **env}, capture_output=True, text=True)
            self.assertEqual(done.returncode, 1)
            self.assertIn(text, done.stderr)


if __name__ == "__main__":
    unittest.main()
