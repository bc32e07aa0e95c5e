# SPDX-License-Identifier: Apache-2.0
"""Array frameworks, which allocate destinations and make tensors from them.

A framework's package is imported when a load first names it, never before.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Literal, Protocol

from .._handles import Destination, TensorLayout
from ..errors import InvalidError, UnsupportedError
from .cupy import CupyFramework
from .held import hold as hold
from .jax import JaxFramework
from .numba import NumbaFramework
from .numpy import NumpyFramework
from .torch import TorchFramework

FrameworkName = Literal["pt", "cupy", "numpy", "jax", "numba"]
UnsupportedPolicy = Literal["error", "bytes"]

# Frameworks of the package safetensors that have only a module here, with functions for whole files.
_MODULES = {"tf": "tensorflow", "tensorflow": "tensorflow", "mlx": "mlx", "paddle": "paddle"}


class Framework(Protocol):
    """The operations that a load needs from a framework. Each load makes its own object."""

    name: str

    def prefer(self, device: str) -> str:
        """Return the device to request from the library, for "auto", "host", "cuda" or "cuda:N".

        Raises InvalidError if the framework has no tensors on that device.
        """

    def dtypes(self, names: set[str]) -> dict[str, Any]:
        """Return the framework's type for each safetensors dtype in names, if it has one."""

    def allocate(self, size: int, align: int, device: str) -> Destination:
        """Return uninitialised memory of at least `size` bytes, aligned to `align`."""

    def stream(self, device: str) -> int:
        """Return the stream whose queued work may still use fresh memory; 0 on the host."""

    def views(
        self, tensors: Sequence[TensorLayout], destinations: Sequence[Destination], dtypes: dict[str, Any]
    ) -> dict[str, Any]:
        """Return one tensor per layout as a view of the destinations. Nothing is copied or read.

        A dtype that is missing in `dtypes` becomes a flat view of its bytes.
        """

    def lacks(self, dtype: str) -> str:
        """Explain in an error why a dtype is missing in `dtypes`."""

    def final(self, view: Any) -> Any:
        """Return the tensor of a view after its bytes have arrived. For most frameworks this is the view."""

    def finals(self, views: dict[str, Any]) -> dict[str, Any]:
        """Return the tensors of all views by name, as `final` does for each."""


def get(name: str | None) -> Framework:
    """Return the framework of that name; None means "pt".

    Raises UnsupportedError if its package cannot be imported.
    """
    if name is None or name == "pt":
        return TorchFramework(_import("torch", name))
    if name == "cupy":
        return CupyFramework(_import("cupy", name))
    if name == "numpy":
        return NumpyFramework(_import("numpy", name))
    if name == "jax":
        return JaxFramework(_import("jax", name))
    if name == "numba":
        return NumbaFramework(_import("numba", name))
    known = f"framework {name!r} is not known (expected 'pt', 'cupy', 'numpy', 'jax' or 'numba')"
    module = _MODULES.get(name) if isinstance(name, str) else None
    if module is not None:
        raise InvalidError(f"{known} (fix: load the whole file with nebulaio.safetensors.{module}.load_file)")
    raise InvalidError(known)


def choose(
    framework: Framework, tensors: Sequence[TensorLayout], unsupported: UnsupportedPolicy
) -> dict[str, Any]:
    """Return the framework's types for these tensors. `unsupported` decides about missing types.

    With "error", a missing type raises an UnsupportedError that names the tensor.
    """
    needed = {tensor["dtype"] for tensor in tensors}
    known = framework.dtypes(needed)
    if unsupported == "error":
        for tensor in tensors:
            if tensor["dtype"] not in known:
                _refuse(framework, tensor, framework.lacks(tensor["dtype"]))
            if tensor["dtype"] == "F4" and tensor["shape"][-1] % 2:
                _refuse(framework, tensor, "packs two values into a byte, and the last dimension is odd")
    return known


def _refuse(framework: Framework, tensor: TensorLayout, why: str) -> None:
    install = "install ml_dtypes, " if "ml_dtypes" in why else ""
    raise UnsupportedError(
        f"load tensor {tensor['name']!r}: dtype {tensor['dtype']} of shape {tensor['shape']}: framework "
        f"{framework.name!r} {why} (fix: {install}pass unsupported='bytes' to get its bytes as a flat uint8 array, "
        "or select other tensors)"
    )


def _import(module: str, name: str | None) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as cause:
        asked = "framework None means 'pt', which" if name is None else f"framework {name!r}"
        raise UnsupportedError(
            f"load: {asked} needs the package {module}, which cannot be imported: {cause} "
            f"(fix: install {module}, or pass another framework: 'pt', 'cupy', 'numpy', 'jax' or 'numba')"
        ) from cause
