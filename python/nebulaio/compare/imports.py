# SPDX-License-Identifier: Apache-2.0
"""Imports everything that loads need, before the first measurement and without using a device."""

from __future__ import annotations

import importlib
import os
import platform
from collections.abc import Iterable


def prepare(architectures: Iterable[str], loaders: Iterable[str]) -> dict[str, str]:
    """Import frameworks and the code of these architectures; returns versions. Raises ImportError."""
    # NVML answers whether there is a GPU without a context, which fork would not survive.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # everything is on disk: use no network
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    versions = {"python": platform.python_version()}
    needed = ["torch", "transformers", *(["safetensors.torch"] if "safetensors" in loaders else [])]
    for name in (*needed, "safetensors", "accelerate"):
        try:
            module = importlib.import_module(name)
        except ImportError:
            if name in needed:
                raise
            versions[name] = "missing"
            continue
        versions[name] = str(getattr(module, "__version__", ""))
    versions.pop("safetensors.torch", None)
    transformers = importlib.import_module("transformers")
    transformers.utils.logging.disable_progress_bar()
    for name in architectures:
        getattr(transformers, name)  # transformers imports a model's code when its class is asked for
    return versions
