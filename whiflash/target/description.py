"""What the plan says about a loaded target, read off the model itself."""

from __future__ import annotations

from transformers import PreTrainedModel

from whiflash.core.protocols import TargetInfo
from whiflash.models.linear import PackedLinear
from whiflash.models.tokenizer import HFTokenizer
from whiflash.target.measured import Measurement
from whiflash.target.target import LocalTarget

# Caches grow by doubling, so bytes per token are stated for a full power of two.
_MANY_TOKENS = 1024


def describe(
    target: LocalTarget,
    tokenizer: HFTokenizer,
    measurement: Measurement,
    *,
    name: str,
    context_limit: int,
    fingerprint: str,
    notes: tuple[str, ...],
) -> TargetInfo:
    """The record of a built and measured target."""
    model, settings = target.runner.model, measurement.settings
    return TargetInfo(
        name=name,
        architecture=type(model).__name__,
        num_layers=int(model.config.num_hidden_layers),
        hidden_size=int(model.config.hidden_size),
        vocab_size=int(model.config.vocab_size),
        context_limit=context_limit,
        eos_ids=eos_ids(model, tokenizer),
        dtype=settings.dtype,
        device=str(target.runner.device),
        attention=settings.attention,
        linears=settings.linears,
        exactness=measurement.exactness,
        weight_bytes=weight_bytes(model),
        cache_bytes_per_token=target.cache_bytes(_MANY_TOKENS) // _MANY_TOKENS,
        fingerprint=fingerprint,
        notes=notes,
    )


def eos_ids(model: PreTrainedModel, tokenizer: HFTokenizer) -> tuple[int, ...]:
    """End of text by the generation config, else the config, else the tokenizer."""
    places = (model.generation_config, model.config)
    found = [getattr(place, "eos_token_id", None) for place in places]
    stated = next((ids for ids in (*found, tokenizer.eos_id) if ids is not None), ())
    return tuple(stated) if isinstance(stated, list | tuple) else (int(stated),)


def weight_bytes(model: PreTrainedModel) -> int:
    """Memory of the weights as they are held, packed ones included."""
    packed = [module for module in model.modules() if isinstance(module, PackedLinear)]
    dense = sum(weight.nbytes for weight in model.parameters())
    return dense + sum(m.in_features * m.out_features * m.packed.dtype.itemsize for m in packed)
