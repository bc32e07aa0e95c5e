# SPDX-License-Identifier: Apache-2.0
"""Loads the weights of SGLang models: the load format `nebulaio`.

SGLang finds `register` by the entry point group sglang.srt.plugins. Then `python -m sglang.launch_server --model-path
MODEL --load-format nebulaio` loads MODEL with this package. docs/serving.md describes the settings and the report.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["register"]

_TARGET = "sglang.srt.configs.load_config.LoadConfig._verify_load_format"


def register() -> None:
    """Add the load format `nebulaio` to SGLang's command line and to its LoadConfig. A second call does nothing.

    SGLang calls this function in each of its processes. SGLang's list of formats is closed, but a LoadConfig may hold
    a loader class instead of a name. So the hook puts our class in the place of the name.
    """
    choices: Any = importlib.import_module("sglang.srt.arg_groups.choices")
    hooks: Any = importlib.import_module("sglang.srt.plugins.hook_registry")
    if "nebulaio" in choices.LOAD_FORMAT_CHOICES:
        return
    choices.add_load_format_choices(["nebulaio"])
    hooks.HookRegistry.register(_TARGET, _verify_load_format, hooks.HookType.AROUND)


def _verify_load_format(original: Any, config: Any) -> None:
    name = config.load_format
    if isinstance(name, str) and name.lower() == "nebulaio":
        loader: Any = importlib.import_module("nebulaio._sglang_loader")
        config.load_format = loader.NebulaioLoader
        return
    original(config)
