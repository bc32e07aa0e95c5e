# SPDX-License-Identifier: Apache-2.0
"""The class and the configuration of a model, by the rules of transformers' auto classes."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import InvalidError, UnsupportedError

_HUB = ("cache_dir", "force_download", "local_files_only", "proxies", "revision", "token")
_KEPT = ("dtype", "torch_dtype", "quantization_config")  # for the model, not for its configuration


class Chosen(NamedTuple):
    """A model class, its configuration, and the arguments that the configuration has not used."""

    model: Any
    config: Any
    rest: dict[str, Any]


def choose(transformers: Any, folder: str, cls: Any, arguments: dict[str, Any]) -> Chosen:
    """Return the class of the model in a folder, and its configuration with the arguments that belong to it.

    `cls` is a model class, an auto class or None. None means the class that the configuration names under
    "architectures", else that of AutoModelForCausalLM, else that of AutoModel.
    """
    if cls is not None and not hasattr(cls, "from_pretrained"):
        raise InvalidError(f"cls={cls!r} is not a class of transformers, such as AutoModelForCausalLM")
    is_auto = cls is None or hasattr(cls, "_model_mapping")
    rest = dict(arguments)
    hub = {name: rest.pop(name) for name in _HUB if name in rest}
    code_revision = rest.pop("code_revision", None)
    trust = rest.get("trust_remote_code")
    config = rest.pop("config", None)
    if config is None or isinstance(config, str) or hasattr(config, "__fspath__"):
        kept = {name: rest.pop(name) for name in _KEPT if name in rest}
        family = transformers.AutoConfig if is_auto or cls.config_class is None else cls.config_class
        more = {**hub, **({"code_revision": code_revision} if is_auto and code_revision is not None else {})}
        config, rest = family.from_pretrained(config or folder, return_unused_kwargs=True, **more, **rest)
        rest.update(kept)
    rest.pop("trust_remote_code", None)
    if is_auto:
        cls, config, trust = _of_auto(transformers, cls, folder, config, trust, hub, code_revision)
    if trust is not None:
        rest["trust_remote_code"] = trust
    return Chosen(cls, config, rest)


def _of_auto(
    transformers: Any, cls: Any, folder: str, config: Any, trust: Any, hub: dict[str, Any], code_revision: Any
) -> tuple[Any, Any, Any]:
    """Return the class of a configuration, the configuration that this class takes, and whether its code is trusted."""
    from importlib import import_module

    code = import_module("transformers.dynamic_module_utils")
    named = getattr(config, "auto_map", None) or {}
    auto = cls or _auto_of(transformers, config, named)
    known = type(config) in auto._model_mapping
    by_name = None if cls is not None else _named(transformers, config)
    is_remote = auto.__name__ in named
    reference = named.get(auto.__name__, "")
    upstream = reference.partition("--")[0] if "--" in reference else None
    has_local = known or by_name is not None
    trust = code.resolve_trust_remote_code(trust, folder, has_local, is_remote, upstream_repo=upstream)
    if is_remote and trust and (not known or _class(auto, config).__module__.startswith("transformers.")):
        found = code.get_class_from_dynamic_module(reference, folder, code_revision=code_revision, **hub)
        found.register_for_auto_class(auto_class=auto)
        return found, config, trust
    if by_name is not None:
        return by_name, config, trust
    if not known:
        raise UnsupportedError(
            f"load model {folder!r}: {auto.__name__} has no class for {type(config).__name__} "
            "(fix: pass cls=, the class of the model)"
        )
    found = _class(auto, config)
    text = (getattr(config, "sub_configs", None) or {}).get("text_config")
    if text is not None and getattr(found, "config_class", None) is text:
        quantised = getattr(config, "quantization_config", None)
        config = config.get_text_config()
        if quantised is not None:
            config.quantization_config = quantised
    return found, config, trust


def _auto_of(transformers: Any, config: Any, named: dict[str, Any]) -> Any:
    """Return the auto class that fits a configuration, where the caller names none."""
    first, second = transformers.AutoModelForCausalLM, transformers.AutoModel
    for auto in (first, second):
        if auto.__name__ in named or type(config) in auto._model_mapping:
            return auto
    return second


def _named(transformers: Any, config: Any) -> Any:
    """Return the class of transformers that a configuration names under "architectures", or None."""
    for name in getattr(config, "architectures", None) or ():
        found = getattr(transformers, name, None) if isinstance(name, str) else None
        if isinstance(found, type) and issubclass(found, transformers.PreTrainedModel):
            return found
    return None


def _class(auto: Any, config: Any) -> Any:
    """Return the class of a configuration in an auto class. If there are several, "architectures" decides."""
    known = auto._model_mapping[type(config)]
    if not isinstance(known, (list, tuple)):
        return known
    names = {one.__name__: one for one in known if one is not None}
    for name in getattr(config, "architectures", None) or ():
        if name in names:
            return names[name]
    return known[0]
