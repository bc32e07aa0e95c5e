# SPDX-License-Identifier: Apache-2.0
"""Fill a model's parameters while later tensors still arrive, as vLLM's loaders do.

    pip install ./python numpy
    python examples/stream.py model.safetensors

`stream` yields (name, tensor) in the order of the files, which is what
`model.load_weights(iterator)` of vLLM consumes. Each tensor is final where it
lies, so that nothing has to be cloned; `lookahead=1` keeps at most two files in
memory beside the parameters. Without torch the parameters are numpy arrays.
"""

import sys

import nebulaio
from nebulaio.safetensors import inspect, stream


def load_weights(parameters, weights):
    """The consumer: copy each tensor into its parameter. Returns the names that came."""
    loaded = set()
    for name, tensor in weights:
        parameters[name][...] = tensor
        loaded.add(name)
    return loaded


def main(path):
    try:
        import torch

        framework, device, empty = "pt", "auto", lambda t: torch.empty_like(t)
    except ImportError:
        import numpy

        framework, device, empty = "numpy", "host", numpy.empty_like
    options = {"framework": framework, "unsupported": "bytes"}
    # A real model has its parameters already; here they are made in the shape of the first pass.
    parameters = {name: empty(tensor) for name, tensor in stream(path, device, lookahead=1, **options)}
    loaded = load_weights(parameters, stream(path, device, lookahead=1, **options))
    report = nebulaio.last_report()
    print(f"{len(loaded)} of {len(inspect(path)['tensors'])} tensors on {report['device']['id']}, the last file at {report['gbps']:.1f} GB/s")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: stream.py MODEL   (a .safetensors file, an index or a model directory)")
    main(sys.argv[1])
