# SPDX-License-Identifier: Apache-2.0
"""Model loaders of vLLM that read each rank's bytes straight into its parameters. Importing this module imports vLLM."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from . import _deferred_plan, _load, _serving
from ._deferred import settle_parameters
from ._deferred_plan import LoadPlan
from .errors import CorruptError, InvalidError, UnsupportedError

torch: Any = importlib.import_module("torch")
_base: Any = importlib.import_module("vllm.model_executor.model_loader.base_loader")
_default: Any = importlib.import_module("vllm.model_executor.model_loader.default_loader")
_experts: Any = importlib.import_module("vllm.model_executor.model_loader.ep_weight_filter")
_sharded: Any = importlib.import_module("vllm.model_executor.model_loader.sharded_state_loader")
_weights: Any = importlib.import_module("vllm.model_executor.model_loader.weight_utils")
_modes: Any = importlib.import_module("torch.utils._python_dispatch")
_distributed: Any = importlib.import_module("vllm.distributed")
_tqdm: Any = importlib.import_module("tqdm.auto")
_logger: Any = importlib.import_module("vllm.logger").init_logger("vllm.nebulaio")

if TYPE_CHECKING:

    class _Base:
        """vLLM's BaseModelLoader, for type checkers without vLLM."""

        load_config: Any

        def __init__(self, load_config: Any) -> None: ...

else:
    _Base = _base.BaseModelLoader


_LOADED_FROM = "_nebulaio_loaded_from"  # an attribute of a model: the path that its weights were loaded for


class _Loader(_Base):
    """What both load formats share."""

    _without: Sequence[str] = ()

    def __init__(self, load_config: Any) -> None:
        super().__init__(load_config)
        self.settings = _serving.settings(
            load_config.model_loader_extra_config, load_config.load_format, without=self._without
        )
        self.last_report: dict[str, Any] | None = None

    def _plan(self, model: Any, bar: _Bar | None) -> LoadPlan:
        gap = self.settings.gap
        return LoadPlan(
            _device_of(model),
            verify=self.settings.verify,
            cache=self.settings.cache,
            gap=_deferred_plan.GAP if gap is None else gap,
            progress=None if bar is None else bar.show,
        )

    @contextmanager
    def _planned(self, model: Any) -> Iterator[LoadPlan]:
        """Make a plan, record it if the settings say so, and report at the end."""
        with _Bar(_weights.enable_tqdm(self.load_config.use_tqdm_on_load)) as bar:
            plan = self._plan(model, bar)
            if not self.settings.defer:
                yield plan
            else:
                with plan.recording(), _flushed_before_processing(model, plan):
                    yield plan
            settle_parameters(model)
        self.last_report = {"framework": "vllm", "load_format": self.load_config.load_format, **plan.report()}
        rank = _distributed.get_tensor_model_parallel_rank()
        world = _distributed.get_tensor_model_parallel_world_size()
        _serving.write_report(self.last_report, self.settings.report, rank, world, _logger.info)


class NebulaioLoader(_Loader):
    """The load format `nebulaio`: safetensors checkpoints, as vLLM's own loader takes them.

    `last_report` is the report of the last `load_weights`, or None.
    """

    _without = ("pattern",)

    def __init__(self, load_config: Any) -> None:
        super().__init__(load_config)
        # vLLM's own loader finds and downloads files, and knows the experts of a rank.
        self._stock = _default.DefaultModelLoader(
            replace(load_config, load_format="auto", model_loader_extra_config={}, safetensors_load_strategy=None)
        )

    def download_model(self, model_config: Any) -> None:
        """Download the weights of a hub model, unless the setting `weights` names others."""
        if self.settings.weights is None:
            self._stock.download_model(model_config)

    def load_weights(self, model: Any, model_config: Any) -> None:
        """Load the weights into the model. On return the parameters have their values."""
        if model_config.quantization == "torchao":
            raise UnsupportedError(
                f"load {model_config.model}: load format 'nebulaio' cannot read serialised torchao tensors "
                "(fix: --load-format safetensors)"
            )
        stock = self._stock
        stock._init_ep_weight_filter(model_config)
        stock._init_mm_encoder_only_weight_filter(model, model_config)
        setattr(model, _LOADED_FROM, model_config.model)
        with self._planned(model) as plan:
            loaded = model.load_weights(self._iterate(plan, model_config, model))
        is_strict = self.settings.strict
        if is_strict is None:
            is_strict = model_config.quantization is None and loaded is not None
        if is_strict:
            stock.track_weights_loading(model, loaded, quantized=model_config.quantization is not None)

    def get_all_weights(self, model_config: Any, model: Any) -> Iterator[tuple[str, Any]]:
        """Yield all weights by name, for reloads. A weight is read when it is copied or used, and only the part needed."""
        yield from self._iterate(self._plan(model, None), model_config, model)

    def _iterate(self, plan: LoadPlan, model_config: Any, model: Any) -> Iterator[tuple[str, Any]]:
        source = _default.DefaultModelLoader.Source
        first = source(
            model_config.model,
            model_config.revision,
            fall_back_to_pt=False,
            allow_patterns_overrides=getattr(model, "allow_patterns_overrides", None),
            is_unused_weight=getattr(model, "is_unused_checkpoint_weight", None),
        )
        # A reload from another path replaces the weights of the settings, too.
        is_same = getattr(model, _LOADED_FROM, model_config.model) == model_config.model
        for number, one in enumerate((first, *getattr(model, "secondary_weights", ()))):
            found = self._find(one, is_first=number == 0 and is_same)
            for name, tensor in plan.tensors(found.files, found.client):
                if _experts.should_skip_weight(name, self._stock.local_expert_ids):
                    continue
                yield one.prefix + name, tensor if self.settings.defer else tensor.real("defer=false")

    def _find(self, source: Any, is_first: bool) -> _serving.Checkpoint:
        """Return the files of one source of weights."""
        stock = self._stock
        if is_first and self.settings.weights is not None:
            found = _serving.checkpoint(self.settings.weights, source.allow_patterns_overrides or ["*.safetensors"])
            if found.client is not None:
                return found
            folder, files, index = self.settings.weights, found.files, _serving.INDEX
        else:
            if _load.is_url(source.model_or_path):
                raise InvalidError(
                    f"load {source.model_or_path}: load format 'nebulaio' takes URLs as a setting "
                    f'(fix: --model-loader-extra-config \'{{"weights": "{source.model_or_path}"}}\' beside a local directory)'
                )
            folder, files, is_safe, index = stock._prepare_weights(
                source.model_or_path, source.subfolder, source.revision, False, source.allow_patterns_overrides
            )
            if not is_safe:
                raise UnsupportedError(
                    f"load {source.model_or_path}: there are no safetensors files (fix: --load-format auto)")
        if stock._encoder_only_lm_prefixes is not None:
            files = _weights.filter_mm_encoder_only_safetensors_files(
                files, folder, index, stock._encoder_only_lm_prefixes, weights_mapper=stock._encoder_only_weights_mapper
            )
        if source.is_unused_weight is not None:
            files = _weights.filter_safetensors_files_by_weight_name(files, source.is_unused_weight)
        return _serving.Checkpoint(sorted(files, key=_weights._natural_sort_key))


class NebulaioShardedLoader(_Loader):
    """The load format `nebulaio_sharded`: files of vLLM's `sharded_state`, of which each rank reads its own."""

    _without = ("strict",)

    def download_model(self, model_config: Any) -> None:
        """Download the files of a hub model, unless the setting `weights` names others."""
        if self.settings.weights is None:
            self._place(model_config)

    def load_weights(self, model: Any, model_config: Any) -> None:
        """Load this rank's files into the model. Raises CorruptError if a tensor of the model is missing."""
        stock = _sharded.ShardedStateLoader
        place = self._place(model_config)
        pattern = stock._render_default_pattern(self.settings.pattern, part="*")
        found = _serving.checkpoint(place, [pattern], index="")
        waiting = stock._filter_subtensors(model.state_dict())
        with self._planned(model) as plan:
            for name, tensor in plan.tensors(found.files, found.client):
                if name not in waiting:
                    raise CorruptError(f"load {place}: the model has no tensor {name!r}, or two files hold it")
                target = waiting.pop(name).data
                if tensor.dim() != target.dim() or any(a > b for a, b in zip(tensor.shape, target.shape)):
                    raise CorruptError(
                        f"load {place}: {name!r} has shape {list(tensor.shape)}, expected {list(target.shape)}")
                for place_of, extent in enumerate(tensor.shape):
                    target = target.narrow(place_of, 0, extent)  # LoRA pads some parameters
                target.copy_(tensor if self.settings.defer else tensor.real("defer=false"))
        if waiting:
            raise CorruptError(f"load {place}: the files of {pattern} have no {', '.join(sorted(waiting)[:5])}")

    def _place(self, model_config: Any) -> str:
        if self.settings.weights is not None:
            return self.settings.weights
        return str(_sharded.ShardedStateLoader._prepare_weights(self, model_config.model_weights or model_config.model,
                                                                model_config.revision))


class _Bar:
    """A progress bar of the bytes of all jobs."""

    def __init__(self, is_on: bool) -> None:
        self._bar = _tqdm.tqdm(desc="Loading weights by nebulaio", unit="B", unit_scale=True, disable=not is_on)
        self._done = 0  # bytes of the current job

    def show(self, done: int, total: int) -> None:
        """Move the bar. Called by each job with its own counts."""
        self._bar.update(done if done < self._done else done - self._done)
        self._done = 0 if done == total else done

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()


@contextmanager
def _flushed_before_processing(model: Any, plan: LoadPlan) -> Iterator[None]:
    """Run recorded copies before a layer is quantised during the load: its kernels read memory unseen by torch."""
    patched = []
    for module in model.modules():
        method: Any = getattr(module, "quant_method", None)
        if getattr(method, "uses_meta_device", False) and "process_weights_after_loading" not in vars(method):
            method.process_weights_after_loading = _flushing(plan, method.process_weights_after_loading)
            patched.append(method)
    try:
        yield
    finally:
        for method in patched:
            del method.process_weights_after_loading


def _flushing(plan: LoadPlan, original: Any) -> Any:
    def process_weights_after_loading(layer: Any) -> Any:
        plan.flush("process_weights_after_loading")
        with _modes._disable_current_modes():  # compiled kernels do not run under a mode
            return original(layer)

    return process_weights_after_loading


def _device_of(model: Any) -> Any:
    """Return the device of the first parameter with memory; without one, the default device."""
    found = next((one.device for one in model.parameters() if not one.is_meta), None)
    return torch.get_default_device() if found is None else found
