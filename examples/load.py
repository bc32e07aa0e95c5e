# SPDX-License-Identifier: Apache-2.0
"""Load a model with the Python package and say which path the bytes took.

    pip install ./python numpy
    python examples/load.py model.safetensors

With torch and a GPU the tensors are torch tensors in GPU memory; otherwise they
are numpy arrays in host memory.
"""

import sys

import nebulaio
import nebulaio.safetensors


def main(path: str) -> None:
    try:
        import torch  # noqa: F401

        framework, device = "pt", "auto"
    except ImportError:
        framework, device = "numpy", "host"
    # bfloat16 and float8 have no numpy type of their own: "bytes" gives them as uint8.
    tensors = nebulaio.safetensors.load_model(path, device=device, framework=framework, unsupported="bytes")
    for name in list(tensors)[:3]:
        print(name, tensors[name].dtype, tuple(tensors[name].shape))
    report = nebulaio.last_report()
    print(f"{len(tensors)} tensors on {report['device']['id']}: {report['gbps']:.1f} GB/s, limited by {report['limiting_stage']}")
    for route in report["routes"]:
        print(f"  {route['route']:10} {route['bytes'] / 1e9:.2f} GB")
    for refusal in report["refusals"]:
        print(f"  {refusal['what']} was not taken: {refusal['reason']} (fix: {refusal.get('fix', '-')})")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: load.py MODEL   (a .safetensors file, an index or a model directory)")
    main(sys.argv[1])
