# SPDX-License-Identifier: Apache-2.0
"""`patch` puts NebulaIO's readers in the place of those of the package safetensors, until they are put back."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from . import _patched, _process
from .errors import InvalidError, UnsupportedError

PACKAGES = ("safetensors", "accelerate", "diffusers", "transformers", "torch.distributed.checkpoint")
"""The packages whose imported modules `patch` searches."""

ReportCallback = Callable[[dict[str, Any]], object]


class Patch:
    """Swapped names of other packages. `patch` makes it, and `undo` or the end of a `with` block puts them back."""

    def __init__(self, packages: tuple[str, ...], report: ReportCallback | None) -> None:
        """Record the arguments of `patch`. Nothing is swapped yet."""
        self._packages = packages
        self._report = report
        self._is_on = False

    @property
    def swapped(self) -> list[str]:
        """The names that hold NebulaIO's readers now, such as "transformers.modeling_utils.safe_open".

        Modules that were imported since the call of `patch` are included. The list is
        empty after `undo`.
        """
        with _process.current().lock:
            if not self._is_on:
                return []
            ours = {id(pair.ours) for pair in _state.pairs}
            return sorted({f"{module.__name__}.{name}" for module, name, value in _names(None) if id(value) in ours})

    def undo(self) -> None:
        """Put the original readers back, unless another patch is still on. A second call does nothing.

        Objects that NebulaIO's readers have opened stay usable.
        """
        with _process.current().lock:
            if self._is_on:
                self._is_on = False
                _state.remove(self)

    def __enter__(self) -> Patch:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()

    def __repr__(self) -> str:
        return f"<nebulaio.patch, {len(self.swapped)} names swapped>" if self._is_on else "<nebulaio.patch, undone>"


class _State:
    """The patches of this process that are on, and the readers that they have swapped."""

    def __init__(self) -> None:
        self.patches: list[Patch] = []
        self.pairs: list[_patched.Pair] = []

    def add(self, patch: Patch, theirs: ModuleType) -> None:
        """Swap the names that a patch asks for, also in modules that were imported since the last patch."""
        known = {id(one) for pair in self.pairs for one in (pair.theirs, pair.ours)}
        self.pairs += [pair for pair in _patched.pairs(theirs, self.tell) if id(pair.theirs) not in known]
        self.patches.append(patch)
        patch._is_on = True
        ours = {id(pair.theirs): pair.ours for pair in self.pairs}
        for module, name, value in _names(patch._packages):
            if id(value) in ours:
                setattr(module, name, ours[id(value)])

    def remove(self, patch: Patch) -> None:
        """Forget a patch, and put the originals back after the last one, in whatever module they are by now."""
        self.patches.remove(patch)
        if self.patches:
            return
        theirs = {id(pair.ours): pair.theirs for pair in self.pairs}
        for module, name, value in _names(None):
            if id(value) in theirs:
                setattr(module, name, theirs[id(value)])
        self.pairs = []

    def tell(self, read: Callable[[], dict[str, Any]]) -> None:
        """Give the report of a load to the callbacks of the patches that are on."""
        for patch in list(self.patches):
            if patch._report is not None:
                patch._report(read())


_state = _State()


def patch(*packages: str, report: ReportCallback | None = None) -> Patch:
    """Make other packages read .safetensors files with NebulaIO, until the result's `undo`.

        with nebulaio.patch() as swapped:
            model = AutoModel.from_pretrained("model")

    The names `safe_open` and `load_file` of the package safetensors are swapped: in safetensors
    itself, and in every imported module of accelerate, diffusers, transformers and
    torch.distributed.checkpoint that has imported them. A module that imports them later, of
    any package, gets NebulaIO's. `Patch.swapped` lists the names.

    Args:
        packages: Further packages or modules to search, such as "peft".
        report: Function, called with the report of each load in the thread that asked for the
            load. An exception of the function is raised by the load.

    Only torch tensors and NumPy arrays, on the host and on CUDA devices, are read by NebulaIO. A
    file that is opened for another framework or device is opened by the package safetensors.
    Errors are classes of `nebulaio.errors`, and also of `safetensors.SafetensorError`. Headers
    are read with `lenient=True`. Some headers that the package safetensors accepts still raise
    CorruptError: a key that occurs twice, a name with NUL or of more than 4,096 bytes, more than
    64 dimensions, a shape or an offset of 2^48 or more, an entry that is an array, a dtype that
    is an object, more than 1,000,000 tensors, more than 65,536 entries of metadata, and an unknown
    field with more than 16 levels or 256 keys.

    Patches may be nested, and may be made and undone by several threads, in any order. The
    names are swapped for the whole process, from the first `patch` to the `undo` of the last
    one. A forked child inherits the patches that are on.

    Copies that are no names of modules, such as default arguments, are not swapped. A name that
    somebody else has replaced in the meantime is left alone.

    Raises:
        UnsupportedError: The package safetensors is not installed.
    """
    for name in packages:
        if not isinstance(name, str) or not name:
            raise InvalidError(f"patch: {name!r} is not the name of a package, such as 'peft'")
    if report is not None and not callable(report):
        raise InvalidError(f"patch: report={report!r} is not callable")
    try:
        theirs = importlib.import_module("safetensors")
    except ImportError as cause:
        raise UnsupportedError(
            f"patch: the package safetensors cannot be imported: {cause} (fix: pip install safetensors)") from cause
    made = Patch((*PACKAGES, *packages), report)
    with _process.current().lock:
        _state.add(made, theirs)
    return made


def _names(packages: tuple[str, ...] | None) -> Iterator[tuple[ModuleType, str, Any]]:
    """Yield every name of the imported modules of these packages, or of all packages but this one, with its value."""
    for where, module in list(sys.modules.items()):
        if not isinstance(module, ModuleType) or where.partition(".")[0] == __name__.partition(".")[0]:
            continue
        if packages is None or any(where == one or where.startswith(one + ".") for one in packages):
            # vars() does not import what a lazy module has not imported yet.
            for name, value in list(vars(module).items()):
                yield module, name, value
