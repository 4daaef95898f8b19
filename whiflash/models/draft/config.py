"""What a drafter's config.json says about its decoder layers, checked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from whiflash.core.errors import ModelError, UnsupportedModelError
from whiflash.core.wording import explain

Table = TypeVar("Table", bound=BaseModel)
ACTIVATION = "silu"
FULL_ATTENTION = "full_attention"
Size = Annotated[int, Field(gt=0, le=1 << 24)]  # beyond, a config is damaged, not large
Variants = Mapping[str, tuple[str, object]]
"""Keys that turn a drafter into another one: what that is, and the value that says nothing."""

SCALES: Variants = {
    "output_multiplier": ("scaled logits", 1),
    "final_logit_softcapping": ("soft-capped logits", False),
    "input_embedding_scale": ("scaled embeddings", 1),
    "attention_value_scale": ("scaled attention values", 1),
}


class DecoderShape(BaseModel):
    """The keys that all layouts share, in Hugging Face's spelling. `rope` is read on its own."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    hidden_size: Size
    intermediate_size: Size
    num_attention_heads: Size
    num_key_value_heads: Size | None = None
    num_hidden_layers: int = Field(default=1, gt=0, le=1000)
    head_dim: Size | None = None
    rms_norm_eps: float = Field(default=1e-6, gt=0)
    vocab_size: Size
    hidden_act: str = ACTIVATION
    attention_bias: bool = False
    mlp_bias: bool = False
    layer_types: list[str] | None = None
    use_sliding_window: bool | None = None

    @property
    def num_heads(self) -> int:
        return self.num_attention_heads

    @property
    def num_kv_heads(self) -> int:
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def head_width(self) -> int:
        return self.head_dim or self.hidden_size // self.num_attention_heads


def parse(table: type[Table], config: Mapping[str, Any], source: Path) -> Table:
    """`config` as a `table`. Raises ModelError, naming the first wrong field."""
    try:
        return table.model_validate(dict(config))
    except ValidationError as error:
        told = explain(error.errors(include_url=False)[:1], table)
        raise ModelError(f"{source / 'config.json'}: {told}") from error


def require_plain(shape: DecoderShape, source: Path) -> None:
    """Refuses what the shared layers do not compute. Raises UnsupportedModelError, ModelError."""
    if shape.hidden_act != ACTIVATION:
        raise UnsupportedModelError(
            f"{source}: hidden_act {shape.hidden_act!r} is not supported; drafters use {ACTIVATION}"
        )
    if shape.num_heads % shape.num_kv_heads:
        raise ModelError(
            f"{source}: {shape.num_heads} heads do not share {shape.num_kv_heads} key heads"
        )


def require_none_of(variants: Variants, table: Mapping[str, Any], source: Path) -> None:
    """Raises UnsupportedModelError, naming the key, where the table has one of `variants`."""
    for key, (what, nothing) in variants.items():
        value = table.get(key)
        if value is not None and value != nothing:
            raise UnsupportedModelError(f"{source} has {key}: {what} is not supported")
