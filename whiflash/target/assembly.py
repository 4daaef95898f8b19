"""From model files to a target: weights read, rotations fixed, layers and attention swapped."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from whiflash.core.errors import ConfigError, ModelError
from whiflash.models.backend import AttentionBackend, SdpaBackend
from whiflash.models.files import ModelFiles
from whiflash.models.kernel_attention import KernelBackend
from whiflash.models.launch import KERNEL_DTYPES
from whiflash.models.linear import pack_linears, plan_rows
from whiflash.models.quiet import no_stderr, quiet_libraries
from whiflash.models.runner import ModelRunner
from whiflash.models.slab import CacheLayout
from whiflash.target.target import LocalTarget

KERNEL, SDPA = "kernel", "sdpa"
PACKED, PLAIN = "packed", "plain"
_BACKENDS: dict[str, Callable[[CacheLayout], AttentionBackend]] = {
    KERNEL: KernelBackend,
    SDPA: SdpaBackend,
}


@dataclass(frozen=True, slots=True)
class TargetSettings:
    """How a target computes: dtype ("bfloat16"), attention (kernel | sdpa), linears (packed |
    plain) and the rows that a forward is padded to."""

    dtype: str
    attention: str
    linears: str
    min_rows: int = 1

    @property
    def label(self) -> str:
        return f"{self.dtype} {self.linears}"

    @property
    def torch_dtype(self) -> torch.dtype:
        found = getattr(torch, self.dtype, None)
        if not isinstance(found, torch.dtype):
            raise ConfigError(f"dtype {self.dtype!r} is unknown; take auto, float32 or bfloat16")
        return found


def attention_for(asked: str, dtype: torch.dtype, device: str) -> str:
    """Resolves "auto". Raises ConfigError if the asked attention cannot run there."""
    has_kernel = device == "cpu" and dtype in KERNEL_DTYPES
    if asked == "auto":
        return KERNEL if has_kernel else SDPA
    if asked not in _BACKENDS:
        raise ConfigError(f"attention {asked!r} is unknown; take auto, {KERNEL} or {SDPA}")
    if asked == KERNEL and not has_kernel:
        raise ConfigError(f"attention {KERNEL} runs on cpu in bfloat16, float32 and float64 only")
    return asked


def read_model(
    files: ModelFiles,
    config: PreTrainedConfig,
    dtype: torch.dtype,
    device: str,
    num_layers: int | None = None,
) -> PreTrainedModel:
    """The plain transformers model (its first `num_layers` layers, if given), every weight read.

    Raises ModelError if the files are damaged or lack a tensor.
    """
    quiet_libraries()
    config = copy.deepcopy(config)
    if num_layers is not None:
        _shorten(config, num_layers)
    options: dict[str, Any] = {"config": config, "dtype": dtype, "local_files_only": True}
    options |= {"output_loading_info": True, **files.read_options}
    read: Callable[..., Any] = AutoModelForCausalLM.from_pretrained
    try:
        with no_stderr():
            model, report = read(files.folder, **options)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ModelError(f"cannot read the weights in {files.folder}: {reason}") from error
    missing = sorted(report["missing_keys"])
    if missing:
        raise ModelError(
            f"{files.folder} lacks {len(missing)} weights ({missing[0]}, ...); fetch it again"
        )
    model.hf_quantizer, model.is_quantized = None, False  # GGUF is plain floats by now
    if dtype == torch.float64:
        # transformers' default for experts, a grouped matmul, has no float64 form.
        model.set_experts_implementation("eager")
    loaded: PreTrainedModel = model.to(device).eval()
    return loaded


class ModelReader:
    """Reads one model as often as asked, in any dtype; a GGUF file is decoded only once."""

    def __init__(self, files: ModelFiles, config: PreTrainedConfig, device: str) -> None:
        self._files = files
        self._config = config
        self._device = device
        self._decoded: PreTrainedModel | None = None

    def read(self, dtype: torch.dtype, max_layers: int | None = None) -> PreTrainedModel:
        """The plain model, its first `max_layers` layers if that is given and saves reading."""
        if self._files.gguf_name:
            return self._decode(dtype)
        is_short = max_layers is not None and max_layers < int(self._config.num_hidden_layers)
        num_layers = max_layers if is_short else None
        return read_model(self._files, self._config, dtype, self._device, num_layers)

    def _decode(self, dtype: torch.dtype) -> PreTrainedModel:
        if self._decoded is None:
            self._decoded = read_model(self._files, self._config, torch.float32, self._device)
        model: PreTrainedModel = copy.deepcopy(self._decoded).to(dtype)  # type: ignore[arg-type]
        return model


def _shorten(config: PreTrainedConfig, num_layers: int) -> None:
    config.num_hidden_layers = num_layers
    for key in ("layer_types", "mlp_layer_types"):
        kinds = getattr(config, key, None)
        if kinds:
            setattr(config, key, list(kinds)[:num_layers])


def fix_longrope(model: PreTrainedModel, context_limit: int) -> str | None:
    """Chooses longrope's short or long factors once, by the context limit: transformers chooses
    per call by the largest position, which would make a row depend on the rows beside it.

    Returns a note on the choice, None if the model has no longrope.
    """
    note = None
    for module in model.modules():
        if getattr(module, "rope_type", None) == "longrope":
            note = _fix_rotation(module, model.config, context_limit)
    return note


def _fix_rotation(module: nn.Module, config: PreTrainedConfig, context_limit: int) -> str:
    original = int(config.rope_parameters["original_max_position_embeddings"])
    is_long = context_limit > original
    inv_freq = torch.as_tensor(module.inv_freq)
    frequencies, _ = ROPE_INIT_FUNCTIONS["longrope"](
        config, inv_freq.device, seq_len=original + 1 if is_long else original
    )
    inv_freq.copy_(frequencies)
    vars(module)["rope_type"] = "longrope fixed at load"
    sign, factors = (">", "long") if is_long else ("<=", "short")
    return f"longrope: {factors} factors (context limit {context_limit} {sign} {original})"


def build_target(model: PreTrainedModel, settings: TargetSettings) -> LocalTarget:
    """Swaps in packed linear layers and our attention. The model is changed for good."""
    if settings.linears == PACKED:
        plan_rows(pack_linears(model))
    runner = ModelRunner(model)
    backend = _BACKENDS[settings.attention](runner.layout)
    return LocalTarget(runner, backend, settings.min_rows)
