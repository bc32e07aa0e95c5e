# SPDX-License-Identifier: Apache-2.0
"""A model loader of SGLang that reads each rank's bytes straight into its parameters. Importing it imports SGLang."""

from __future__ import annotations

import copy
import importlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from . import _deferred_plan, _load, _serving
from ._deferred import settle_parameters
from ._deferred_plan import LoadPlan
from .errors import InvalidError, UnsupportedError

torch: Any = importlib.import_module("torch")
_loader: Any = importlib.import_module("sglang.srt.model_loader.loader")
_formats: Any = importlib.import_module("sglang.srt.configs.load_config")
_runtime: Any = importlib.import_module("sglang.srt.runtime_context")
_logger = logging.getLogger("sglang.nebulaio")

if TYPE_CHECKING:

    class _Base:
        """SGLang's DefaultModelLoader, for type checkers without SGLang."""

        load_config: Any
        counter_before_loading_weights: float

        def _prepare_weights(self, *args: Any, **kwargs: Any) -> Any: ...

else:
    _Base = _loader.DefaultModelLoader


class NebulaioLoader(_Base):
    """The load format `nebulaio`: safetensors checkpoints, as SGLang's own loader takes them.

    `last_report` is the report of the last load, or None.
    """

    def __init__(self, load_config: Any) -> None:
        _loader.BaseModelLoader.__init__(self, load_config)
        self.settings = _serving.settings(load_config.model_loader_extra_config, "nebulaio",
                                          without=("pattern", "strict"))
        self.last_report: dict[str, Any] | None = None
        self._active: LoadPlan | None = None

    def load_weights_and_postprocess(self, model: Any, weights: Any, target_device: Any) -> None:
        """Load weights into a model, then process them. All recorded copies are read before the processing."""
        plan = self._active = self._plan(target_device)
        try:
            if self.settings.defer:
                with plan.recording():
                    _loader.DefaultModelLoader.load_weights_only(model, weights, target_device)
            else:
                _loader.DefaultModelLoader.load_weights_only(model, weights, target_device)
            settle_parameters(model)
        finally:
            self._active = None
        self.last_report = {"framework": "sglang", "load_format": "nebulaio", **plan.report()}
        parallel = _runtime.get_parallel()
        _serving.write_report(self.last_report, self.settings.report, parallel.tp_rank, parallel.tp_size, _logger.info)
        _loader.DefaultModelLoader.postprocess_weights(model, target_device)

    def _plan(self, device: Any) -> LoadPlan:
        gap = self.settings.gap
        return LoadPlan(
            device,
            verify=self.settings.verify,
            cache=self.settings.cache,
            gap=_deferred_plan.GAP if gap is None else gap,
        )

    def _prepare_weights(self, *args: Any, **kwargs: Any) -> Any:
        """Find or download the files of a checkpoint by SGLang's own rules for safetensors."""
        own = self.load_config
        self.load_config = copy.copy(own)
        self.load_config.load_format = _formats.LoadFormat.SAFETENSORS
        try:
            return super()._prepare_weights(*args, **kwargs)
        finally:
            self.load_config = own

    def _get_weights_iterator(self, source: Any, *, resolved_source: Any = None, **_: Any) -> Iterator[tuple[str, Any]]:
        """Yield the weights of one source. A weight is read when it is copied or used, and only the part needed."""
        plan = self._plan(torch.get_default_device()) if self._active is None else self._active
        found = self._find(source, resolved_source)
        weights: Any = (
            (name, tensor if self.settings.defer else tensor.real("defer=false"))
            for name, tensor in plan.tensors(found.files, found.client)
        )
        if self.load_config.draft_model_idx is not None:
            return iter(_loader.DefaultModelLoader._filter_mtp_weights(weights, source.prefix,
                                                                       self.load_config.draft_model_idx))
        return ((source.prefix + name, tensor) for name, tensor in weights)

    def _find(self, source: Any, resolved: Any) -> _serving.Checkpoint:
        """Return the files of one source of weights."""
        is_first = source.prefix == "" and source.model_config is not None
        if is_first and self.settings.weights is not None:
            return _serving.checkpoint(self.settings.weights, source.allow_patterns_overrides or ["*.safetensors"])
        if _load.is_url(source.model_or_path):
            raise InvalidError(
                f"load {source.model_or_path}: load format 'nebulaio' takes URLs as a setting "
                f'(fix: --model-loader-extra-config \'{{"weights": "{source.model_or_path}"}}\' beside a local directory)'
            )
        if resolved is not None:
            files, is_safe = list(resolved.weight_files), resolved.use_safetensors
        else:
            folder, files, is_safe = self._prepare_weights(
                source.model_or_path, source.revision, False, source.allow_patterns_overrides
            )
            if is_safe and source.model_config is not None:
                files = _loader.maybe_add_mtp_safetensors(files, folder, _serving.INDEX, source.model_config.hf_config)
        if not is_safe:
            raise UnsupportedError(
                f"load {source.model_or_path}: there are no safetensors files (fix: --load-format auto)")
        return _serving.Checkpoint(sorted(files))
