# SPDX-License-Identifier: Apache-2.0
"""The place of a Hugging Face model: a directory, or a prefix of a bucket."""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import tempfile
from typing import Any

from .. import _gather, _load
from .._background import seen_before
from .._handles import TensorLayout
from ..errors import CorruptError, InvalidError, NotFoundError, UnsupportedError
from ._jobs import Files, Stored

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"

_SMALL = 64 << 20  # bytes of a configuration or code file at most
_MANY = 200  # files of code at most


class Directory:
    """A model in a local directory. A context manager, as `Prefix` is."""

    client: Any = None

    def __init__(self, path: str, subfolder: str) -> None:
        self.name = path
        self.folder = os.path.join(path, subfolder) if subfolder else path
        if not os.path.isfile(os.path.join(self.folder, "config.json")):
            why = "it has no config.json" if os.path.isdir(self.folder) else "there is no such directory"
            raise NotFoundError(
                f"load model {self.folder!r}: {why}, expected a local Hugging Face model directory (fix: correct the path; "
                "nothing is downloaded: `hf download NAME --local-dir DIR` gets a model of the Hub)"
            )

    def __enter__(self) -> Directory:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def has(self, name: str) -> bool:
        """Return whether there is a file of that name."""
        return os.path.isfile(os.path.join(self.folder, name))

    def file(self, name: str) -> str:
        """Return the path of a file, as the library takes it."""
        return os.path.join(self.folder, name)

    def mark(self, file: str) -> object:
        """Return the identity of a file's content, which another write changes."""
        found = os.stat(file)
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

    def cache(self, wanted: str) -> str:
        """Return the cache policy of all jobs. It is decided before the headers are read, which caches their pages."""
        return "bypass" if wanted == "auto" and not seen_before(self.folder) else wanted


class Prefix:
    """A model below a prefix of a bucket. Its configuration is copied into a temporary directory."""

    def __init__(self, url: str, subfolder: str, client: Any) -> None:
        from ..gpudirect import GPUDirectClient

        self.name = url
        place = url.rstrip("/") + "/" + subfolder.strip("/") if subfolder else url
        endpoint, self._bucket, key = _load.place(place, "load model")
        if client is not None and endpoint is not None and endpoint != client.endpoint:
            raise InvalidError(f"load model {url!r}: its endpoint is {endpoint}, the client's is {client.endpoint}")
        self._key = key.rstrip("/") + "/" if key.rstrip("/") else ""
        self._url = place.rstrip("/") + "/"
        self._own = GPUDirectClient(endpoint) if client is None else None
        self.client: Any = self._own or client
        self._copy = tempfile.TemporaryDirectory(prefix="nebulaio-model-")
        self.folder = self._copy.name
        try:
            found = self.client.list(self._bucket, self._key, "/")
            self._sizes = {one.key[len(self._key) :]: one.size for one in found if not one.is_prefix}
            if "config.json" not in self._sizes:
                raise NotFoundError(
                    f"load model {url!r}: there is no object {self._url}config.json "
                    "(fix: correct the URL; expected the prefix of a Hugging Face model's files)"
                )
            code = [name for name in self._sizes if name.endswith(".py")][:_MANY]
            for name in ("config.json", "generation_config.json", *code):
                if name in self._sizes:
                    self.fetch(name)
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Prefix:
        return self

    def __exit__(self, *_: object) -> None:
        self._copy.cleanup()
        if self._own is not None:
            self._own.close()

    def has(self, name: str) -> bool:
        """Return whether there is an object of that name."""
        return name in self._sizes

    def file(self, name: str) -> str:
        """Return the URL of an object."""
        return self._url + name

    def mark(self, file: str) -> object:
        """Return the identity of an object's content."""
        found = self.client.stat(self._bucket, self._key + file.removeprefix(self._url))
        return found.size, found.etag, found.version

    def cache(self, wanted: str) -> str:
        """Return the cache policy of all jobs."""
        return wanted

    def fetch(self, name: str) -> None:
        """Copy a small object into the temporary directory."""
        size = self._sizes[name]
        if size > _SMALL:
            raise UnsupportedError(f"load model {self.name!r}: {name} has {size} bytes, expected at most {_SMALL}")
        data = bytearray(size)
        if size:
            self.client.read_to_gpu(self._bucket, self._key + name, data)
        with open(os.path.join(self.folder, name), "wb") as file:
            file.write(data)


Place = Directory | Prefix


def open_place(path: str | os.PathLike[str], subfolder: str, client: Any) -> Place:
    """Return the place that a path or URL names."""
    name = os.fsdecode(path)
    if not name or "\0" in name:
        raise InvalidError(f"load model {name!r}: a path must not be empty or contain NUL")
    if _load.is_url(name):
        return Prefix(name, subfolder, client)
    if client is not None:
        raise InvalidError(f"client= is given and {name!r} is a path (expected s3://bucket/prefix)")
    return Directory(name, subfolder)


def weights_of(place: Place, explicit: str | None, variant: str | None) -> str | None:
    """Return the name of the safetensors file or index that transformers would load, or None if there is neither."""
    if explicit is not None:
        if os.path.isabs(explicit) or ".." in explicit.split("/"):
            raise InvalidError(f"load model {place.name!r}: transformers_weights={explicit!r} is outside of the model")
        return explicit if explicit.endswith((".safetensors", ".safetensors.index.json")) else None
    for name in (WEIGHTS, INDEX):
        if variant is not None:
            stem, _, ending = name.rpartition(".")
            name = f"{stem}.{variant}.{ending}"
        if place.has(name):
            return name
    return None


def index_metadata(place: Place, name: str) -> dict[str, Any]:
    """Return the metadata of an index, or {} if the name is that of a file of weights."""
    if not name.endswith(".json"):
        return {}
    if isinstance(place, Prefix):
        place.fetch(name)
    try:
        with open(os.path.join(place.folder, name), encoding="utf-8") as file:
            found = json.load(file).get("metadata") or {}
    except (ValueError, AttributeError) as cause:
        raise CorruptError(f"load model {place.name!r}: {name} is not an index: {cause!s:.200}") from cause
    return found if isinstance(found, dict) else {}


def read_headers(place: Place, name: str, verify: bool, cache: str) -> tuple[Files, list[Stored]]:
    """Read and check the headers of a model's files. Returns the files, and their tensors in order of file and offset."""
    wanted = place.cache(cache)
    with _load.open_model([place.file(name)], _load.model_options("host", None, True), place.client) as model:
        layout = model.describe()
    paths = [one["path"] for one in layout["files"]]
    files = Files([_as_given(place, path) for path in paths], wanted, verify, place.client)
    if verify:
        _verify_headers(files, layout["tensors"])
    torch: Any = importlib.import_module("torch")
    kinds = _dtypes(torch, layout["tensors"])
    return files, [_stored(tensor, kinds[tensor["dtype"]]) for tensor in layout["tensors"]]


def _verify_headers(files: Files, tensors: list[TensorLayout]) -> None:
    """Read the bytes in front of the tensors again, and compare their blocks with the checksums."""
    sizes: dict[int, int] = {}
    for tensor in tensors:
        sizes[tensor["file"]] = min(tensor["file_offset"], sizes.get(tensor["file"], tensor["file_offset"]))
    headers = {file: bytearray(size) for file, size in sizes.items()}
    addresses = {file: ctypes.addressof(ctypes.c_char.from_buffer(data)) for file, data in headers.items()}
    segments = [_gather.Segment(file, 0, size, addresses[file], label="header") for file, size in sizes.items()]
    if segments:
        _gather.read(files.names, segments, device="host", verify=True, cache=files.cache, client=files.client)


def _as_given(place: Place, path: str) -> str:
    """Return the name by which a job reads a file: the library names objects by their URL or key."""
    return path if isinstance(place, Directory) else place.file(path.rpartition("/")[2])


def _dtypes(torch: Any, tensors: list[TensorLayout]) -> dict[str, Any]:
    from .._frameworks.torch import TorchFramework

    names = {tensor["dtype"] for tensor in tensors}
    found = TorchFramework(torch).dtypes(names)
    return {name: found.get(name) for name in names}


def _stored(tensor: TensorLayout, dtype: Any) -> Stored:
    shape = tuple(tensor["shape"])
    if tensor["dtype"] == "F4":
        if not shape or shape[-1] % 2:
            dtype = None
        else:
            shape = (*shape[:-1], shape[-1] // 2)
    return Stored(tensor["name"], tensor["file"], tensor["file_offset"], tensor["size"], shape, dtype, tensor["dtype"])
