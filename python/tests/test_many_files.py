# SPDX-License-Identifier: Apache-2.0
"""Models of more files than a process may have open."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from support import random_entry, run_python, write, write_sharded

SHARDS = 2000

LIMITED = """
import hashlib, os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
import nebulaio
from nebulaio.safetensors import inspect, load_model, stream
nebulaio.configure(io=sys.argv[3])
def digest(tensors):
    return hashlib.sha256(b''.join(tensors[name].tobytes() for name in sorted(tensors))).hexdigest()
path, how = sys.argv[1], sys.argv[2]
options = dict(framework='numpy', device='cpu')
if how == 'stream':
    print(digest(dict(stream(path, **options))))
elif how == 'ahead':
    print(digest(dict(stream(path, lookahead=2, **options))))
elif how == 'list':
    files = sorted(os.path.join(path, name) for name in os.listdir(path) if name.endswith('.safetensors'))
    print(digest(dict(stream(files, **options))))
elif how == 'inspect':
    print(len(inspect(path)['tensors']))
elif how == 'verify':
    from nebulaio.safetensors import write_checksums
    write_checksums(path)
    print(digest(load_model(path, verify=True, **options)))
else:
    print(digest(load_model(path, route=how, **options)))
"""


def make(folder: Path, shards: int) -> tuple[Path, str]:
    """A model of tiny shards, and the digest of its tensors."""
    made = {f"model-{n:05d}.safetensors": {f"t{n:05d}": random_entry(n, "U8", [500 + n % 7])} for n in range(shards)}
    write_sharded(folder, made)
    data = b"".join(entry[2] for shard in made.values() for entry in shard.values())
    return folder, hashlib.sha256(data).hexdigest()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    return make(tmp_path_factory.mktemp("many") / "model", SHARDS)


@pytest.mark.parametrize("how, io", [("auto", "auto"), ("buffered", "auto"), ("direct", "uring"), ("direct", "pread"),
                                     ("stream", "auto"),
                                     ("ahead", "auto"), ("list", "auto")])
def test_more_shards_than_descriptors(model: tuple[Path, str], how: str, io: str) -> None:
    done = run_python(LIMITED, model[0], how, io)
    if done.returncode and ("O_DIRECT" in done.stderr or "io_uring" in done.stderr):
        pytest.skip("direct reads or io_uring are not possible here")
    assert (done.returncode, done.stdout.strip()) == (0, model[1]), done.stderr


def test_headers_of_many_shards(model: tuple[Path, str]) -> None:
    assert run_python(LIMITED, model[0], "inspect", "auto").stdout.strip() == str(SHARDS)


def test_checksums_of_many_shards(tmp_path: Path) -> None:
    folder, digest = make(tmp_path / "model", 150)  # 300 descriptors; writing checksums syncs each file
    done = run_python(LIMITED, folder, "verify", "auto")
    assert (done.returncode, done.stdout.strip()) == (0, digest), done.stderr


NO_DESCRIPTORS = """
import os, resource, sys
import numpy, numpy.ma
import nebulaio.safetensors as ns
path = sys.argv[1]
if sys.argv[2] == 'used':
    ns.inspect(path)
elif sys.argv[2] == 'loaded':
    import nebulaio
    nebulaio.version()
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
taken = []
try:
    while True:
        taken.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
said = set()
for _ in range(14):
    for call in (lambda: ns.load_file(path, 'cpu', framework='numpy'), lambda: ns.save_file({'a': numpy.zeros(3)}, path + '.out')):
        try:
            call()
            said.add('done')
        except (OSError, ImportError) as error:
            assert 'oo many open files' in str(error) and 'ulimit -n' in str(error), error
            said.add('refused')
    os.close(taken.pop())
print(*sorted(said))
"""


@pytest.mark.parametrize("before", ["fresh", "loaded", "used"])
def test_without_descriptors_a_process_lives_on(tmp_path: Path, before: str) -> None:
    path = write(tmp_path / "m.safetensors", {"a": random_entry(1, "U8", [9])})
    done = run_python(NO_DESCRIPTORS, path, before)
    assert (done.returncode, done.stdout.split()) == (0, ["done", "refused"]), done.stderr[-3000:]
