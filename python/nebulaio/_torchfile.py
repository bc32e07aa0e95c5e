# SPDX-License-Identifier: Apache-2.0
"""The content of a .pt file as tensors, by torch's own weights_only reader."""

from __future__ import annotations

import importlib
import io
import pickle
from typing import Any

from .errors import CorruptError, DeviceError, OutOfMemoryError, UnsupportedError


class Content(io.RawIOBase):
    """A file in memory that is not copied. io.BytesIO would copy a bytearray."""

    def __init__(self, content: bytearray) -> None:
        self._view = memoryview(content)
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Copy the next bytes into a buffer and return their number."""
        target = memoryview(buffer).cast("B")
        piece = self._view[self._at : self._at + len(target)]
        target[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._view)}[whence]
        if start + offset < 0:
            raise ValueError(f"seek to {start + offset}")
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at


def load(content: bytearray, device: str, what: str) -> Any:
    """Return what torch.save has put into a file, with all tensors on a device.

    `device` is in torch's form. Errors begin with `what`.

    Raises:
        UnsupportedError: The pickle names a class or function that the weights_only reader does not allow.
        CorruptError: The content is not a file of torch.save, or it is damaged.
        OutOfMemoryError: The tensors do not fit.
    """
    torch = importlib.import_module("torch")
    try:
        return torch.load(Content(content), map_location=device, weights_only=True)
    except pickle.UnpicklingError as cause:
        # torch raises this error for a refused class and for bytes that are no pickle.
        refused = next(
            (line.strip() for line in str(cause).splitlines() if "GLOBAL" in line or "allowed" in line), None
        )
        if refused is None:
            raise _corrupt(what, cause) from cause
        raise UnsupportedError(
            f"{what}: torch's weights_only reader refuses it: {refused:.300} (fix: save only tensors and plain data, "
            "or allow the class with torch.serialization.add_safe_globals)"
        ) from cause
    except torch.cuda.OutOfMemoryError as cause:
        raise OutOfMemoryError(f"{what} to {device}: {cause}") from cause
    except RuntimeError as cause:
        if "CUDA" in str(cause):
            raise DeviceError(f"{what} to {device}: {cause}") from cause
        raise _corrupt(what, cause) from cause
    except (EOFError, ValueError, KeyError, IndexError, TypeError, AttributeError, AssertionError) as cause:
        raise _corrupt(what, cause) from cause


def _corrupt(what: str, cause: BaseException) -> CorruptError:
    reason = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
    return CorruptError(
        f"{what}: it is no complete file of torch.save: {reason:.300} (fix: copy it again, or save it again)"
    )
