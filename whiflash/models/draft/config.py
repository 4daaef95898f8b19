"""What a drafter's config.json says about its decoder layers, checked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from whiflash.core.errors import ModelError, UnsupportedModelError
from whiflash.core.wording import explain

Table = TypeVar("Table", bound=BaseModel)
ACTIVATION = "silu"


class DecoderShape(BaseModel):
    """The keys that all layouts share, in Hugging Face's spelling. `rope` is read on its own."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    hidden_size: int = Field(gt=0)
    intermediate_size: int = Field(gt=0)
    num_attention_heads: int = Field(gt=0)
    num_key_value_heads: int | None = Field(default=None, gt=0)
    num_hidden_layers: int = Field(default=1, gt=0)
    head_dim: int | None = Field(default=None, gt=0)
    rms_norm_eps: float = Field(default=1e-6, gt=0)
    vocab_size: int = Field(gt=0)
    hidden_act: str = ACTIVATION
    attention_bias: bool = False
    mlp_bias: bool = False

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
