# SPDX-License-Identifier: Apache-2.0
"""A tensor of a file that is read when its values are needed, and not before.

A `Deferred` is a torch.Tensor without memory. Views of it (narrow, slices, transposes, chunks) and copies of it
(clone, contiguous, to) are deferred tensors too: torch computes their shapes and strides on the device "meta".
`copy_` of a deferred tensor into a real one hands the plan two strided views, and the plan reads straight into the
real one. Everything else needs values: the tensor is materialised, and torch goes on with a real tensor.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any, Protocol

from ._deferred_files import Stored
from .errors import UnsupportedError

torch: Any = importlib.import_module("torch")
_tree: Any = importlib.import_module("torch.utils._pytree")
_aten = torch.ops.aten

if TYPE_CHECKING:

    class _Tensor:
        """torch.Tensor, for type checkers without torch."""

        dim: Any
        shape: Any

else:
    _Tensor = torch.Tensor

_COPIES = {_aten.clone.default, _aten._to_copy.default}
# The results of these views depend on strides, which a lazy clone does not have.
_BY_STRIDE = {_aten.as_strided.default, _aten.view.dtype, _aten._reshape_alias.default}
# These views have the memory of their source. torch conjugates or negates the values when it reads them.
_CHANGED = {_aten._conj.default, _aten._neg_view.default}


class Plan(Protocol):
    """What a deferred tensor asks of the plan that made it."""

    def copy(self, target: Any, source: Deferred) -> bool:
        """Take over the copy of a deferred tensor to a real one. Returns False if torch has to copy a real tensor."""

    def read(self, source: Deferred, why: str) -> Any:
        """Return a new tensor with the values of a deferred one, in its shape and strides."""

    def touch(self, func: Any, args: Any, kwargs: Any) -> None:
        """Finish the recorded copies that an operation on these real tensors would see."""


class Root:
    """The memory that a deferred tensor and its views would share.

    `inner` is the part of the stored tensor as a view on the device meta, `outer` the layout of the memory. Both are
    the same object unless the root is a lazy clone. `real` is that memory after an operation wrote to it, or None.
    """

    def __init__(self, stored: Stored, plan: Plan, inner: Any, outer: Any, device: Any) -> None:
        self.stored = stored
        self.plan = plan
        self.inner = inner
        self.outer = outer
        self.device = device
        self.real: Any = None

    def materialise(self, why: str) -> Any:
        """Return the real memory of all views, which from now on is used instead of the file."""
        if self.real is None:
            self.real = self.plan.read(Deferred(self, self.inner, self.outer), why)
        return self.real


class Deferred(_Tensor):
    """A tensor of a file, or a view of one, whose values have not been read. `defer` makes one."""

    root: Root
    inner: Any
    outer: Any
    value: Any

    @staticmethod
    def __new__(cls: Any, root: Root, inner: Any, outer: Any) -> Any:
        made = torch.Tensor._make_wrapper_subclass(
            cls, outer.size(), strides=outer.stride(), storage_offset=outer.storage_offset(), dtype=outer.dtype,
            layout=torch.strided, device=root.device, requires_grad=False,
        )
        made.root, made.inner, made.outer, made.value = root, inner, outer, None
        return made

    def __init__(self, root: Root, inner: Any, outer: Any) -> None:
        """Do nothing: __new__ has set everything."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatch(func, args, kwargs or {})

    def real(self, why: str) -> Any:
        """Return the values as a real tensor. Further calls return the same tensor."""
        root = self.root
        if root.real is not None:
            with torch._C.DisableTorchFunction():
                place = self.outer.storage_offset() + root.real.storage_offset() - root.outer.storage_offset()
                return root.real.as_strided(self.outer.size(), self.outer.stride(), place)
        if self.value is None:
            self.value = root.plan.read(self, why)
        return self.value

    def __repr__(self, **_: Any) -> str:
        root, shape = self.root, list(self.outer.shape)
        return f"Deferred({root.stored.name!r}, shape={shape}, dtype={self.outer.dtype}, device={root.device})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.real("pickle").__reduce_ex__(protocol)

    def __deepcopy__(self, memo: Any) -> Any:
        return self.real("deepcopy").clone()

    def __array__(self, dtype: Any = None) -> Any:
        return self.real("__array__").__array__(dtype)

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        return self.real("__dlpack__").__dlpack__(*args, **kwargs)

    def __dlpack_device__(self) -> Any:
        return self.real("__dlpack__").__dlpack_device__()

    def numpy(self, **kwargs: Any) -> Any:
        """Return the values as an array of NumPy."""
        return self.real("numpy").numpy(**kwargs)

    def tolist(self) -> Any:
        """Return the values as a list of numbers."""
        return self.real("tolist").tolist()

    def data_ptr(self) -> int:
        """Return the address of the values, which are read for it."""
        return int(self.written("data_ptr").data_ptr())

    def untyped_storage(self) -> Any:
        """Return the storage of the values, which are read for it."""
        return self.written("untyped_storage").untyped_storage()

    def written(self, why: str) -> Any:
        """Return the values in the memory that all views of the tensor share from now on."""
        self.root.materialise(why)
        return self.real(why)


def defer(stored: Stored, plan: Plan, device: Any, layouts: dict[Any, Any]) -> Deferred:
    """Return the deferred tensor of a stored one. Its `device`, a torch.device, is where values are materialised.

    `layouts` keeps tensors on the device meta for later calls: most tensors of a model have one of few shapes.
    """
    kind = stored.dtype, stored.shape
    with torch._C.DisableTorchFunction():
        layout = layouts.get(kind)
        if layout is None:
            layout = layouts[kind] = torch.empty(stored.shape, dtype=stored.dtype, device="meta")
        return Deferred(Root(stored, plan, layout, layout, device), layout, layout)


@functools.cache
def is_deep(func: Any) -> bool:
    """Return whether an operation may take tensors in lists of lists or in dicts, as collective operations do."""
    schema = getattr(func, "_schema", None)
    if schema is None:
        return True  # a higher-order operation takes what it likes
    return any(str(one.type).count("List[") > 1 or "Dict(" in str(one.type) for one in schema.arguments)


def tensors_of(func: Any, args: Any, kwargs: Any) -> list[Any]:
    """Return the tensors among the arguments of an operation."""
    if is_deep(func):
        leaves = _tree.tree_leaves((args, kwargs))
    else:
        leaves = []
        for value in (*args, *kwargs.values()):
            leaves.extend(value if isinstance(value, (list, tuple)) else (value,))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def dispatch(func: Any, args: Any, kwargs: Any) -> Any:
    """Run one operation of torch on arguments of which some are deferred."""
    with torch._C.DisableTorchFunction():
        return _dispatch(func, args, kwargs)


def _dispatch(func: Any, args: Any, kwargs: Any) -> Any:
    first = args[0] if args else None
    if func is _aten.copy_.default and not isinstance(first, Deferred) and isinstance(args[1], Deferred):
        source = args[1]
        if source.root.real is None and source.root.plan.copy(first, source):
            return first
    elif isinstance(first, Deferred) and first.root.real is None:
        found = None
        if is_view(func):
            found = _view(func, first, args[1:], kwargs)
        elif func in _COPIES:
            found = _clone(func, first, args[1:], kwargs)
        if found is not None:
            return found
    return _eager(func, args, kwargs)


@functools.cache
def is_view(func: Any) -> bool:
    """Return whether an operation returns views of its arguments, and neither reads nor writes values."""
    schema = getattr(func, "_schema", None)
    if schema is None:
        return False  # a higher-order operation may do anything
    aliases = [argument.alias_info for argument in schema.arguments if argument.alias_info is not None]
    return any(one.alias_info is not None for one in schema.returns) and not any(one.is_write for one in aliases)


def _view(func: Any, first: Deferred, args: Any, kwargs: Any) -> Any:
    """Return the views that an operation makes of a deferred tensor, or None if they need values."""
    if func in _CHANGED or tensors_of(func, args, kwargs):
        return None
    outer = func(first.outer, *args, **kwargs)  # raises what torch raises for a wrong argument
    if first.outer is first.inner:
        inner = outer
    elif func in _BY_STRIDE:
        return None
    else:
        try:
            inner = func(first.inner, *args, **kwargs)
        except RuntimeError:
            return None  # a view of the clone that is no view of the file
    if isinstance(outer, torch.Tensor):
        return Deferred(first.root, inner, outer)
    return type(outer)(Deferred(first.root, one, other) for one, other in zip(inner, outer, strict=True))


def _clone(func: Any, first: Deferred, args: Any, kwargs: Any) -> Any:
    """Return a lazy clone, or None if the copy converts values."""
    if kwargs.get("dtype", first.outer.dtype) not in (None, first.outer.dtype) or kwargs.get("layout") not in (None, torch.strided):
        return None
    device = torch.device(kwargs.get("device") or first.root.device)
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    outer = first.outer.clone(memory_format=kwargs.get("memory_format") or torch.preserve_format)
    if device.type == "meta":
        return outer
    if device.type not in ("cpu", "cuda") or kwargs.get("pin_memory"):
        return None
    root = Root(first.root.stored, first.root.plan, first.inner, outer, device)
    return Deferred(root, first.inner, outer)


def _eager(func: Any, args: Any, kwargs: Any) -> Any:
    """Run an operation on real tensors. A deferred tensor that the operation writes stays the same object."""
    why = str(func)
    changed = _changed(func, args, kwargs)
    plans: list[Plan] = []
    others: list[Any] = []
    back: dict[int, tuple[Deferred, Any]] = {}

    def replaced(leaf: Any) -> Any:
        if not isinstance(leaf, Deferred):
            if isinstance(leaf, torch.Tensor):
                others.append(leaf)
            return leaf
        plans.append(leaf.root.plan)
        # A view of a written root shares its memory, as views of real tensors do.
        value = leaf.written(why) if id(leaf) in changed or is_view(func) else leaf.real(why)
        if id(leaf) in changed:
            back[id(value)] = leaf, value
        return value

    args, kwargs = _tree.tree_map(replaced, (args, kwargs))
    if plans and others:
        plans[0].touch(func, others, {})
    found = func(*args, **kwargs)
    for leaf, value in back.values():
        if value.shape != leaf.outer.shape or value.stride() != leaf.outer.stride():
            raise UnsupportedError(
                f"{why} changes the shape of {leaf.root.stored.name!r} in place, which NebulaIO cannot do with a tensor "
                "that has no memory yet (fix: use the operation that returns a new view, or the setting defer=false)"
            )
    return _tree.tree_map(lambda leaf: back[id(leaf)][0] if id(leaf) in back else leaf, found) if back else found


def _changed(func: Any, args: Any, kwargs: Any) -> set[int]:
    """Return the ids of the arguments that an operation writes."""
    schema = getattr(func, "_schema", None)
    if schema is None:
        return {id(leaf) for leaf in _tree.tree_leaves((args, kwargs))}
    written: set[int] = set()
    for place, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[place] if place < len(args) else kwargs.get(argument.name)
            written.update(id(leaf) for leaf in _tree.tree_leaves(value))
    return written


def settle_parameters(model: Any) -> None:
    """Replace deferred tensors that the model kept as parameters or buffers by real ones."""
    for module in model.modules():
        for kept in (module._parameters, module._buffers):
            for name, value in kept.items():
                if isinstance(value, Deferred):
                    real = value.real("kept")
                    kept[name] = torch.nn.Parameter(real, requires_grad=False) if kept is module._parameters else real
