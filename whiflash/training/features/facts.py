"""What training must know of a target once its features are there: sizes, embedding, head."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

import torch
from safetensors.torch import load_file, save_file

from whiflash.core.errors import ConfigError, UnsupportedModelError
from whiflash.target.load import LoadedTarget
from whiflash.training.files import keep_settings, read_settings

_ENDS: Final = "target.safetensors"
_FORMAT: Final = "whiflash-features-1"
_DEFAULT_BOUNDARIES_FROM: Final = 7


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """boundaries: of the taps that are kept; dtype: the target's; rope: its rope parameters;
    special_ids: ids that stand for no text, the end of text first."""

    name: str
    fingerprint: str
    tokenizer: str
    architecture: str
    boundaries: tuple[int, ...]
    dtype: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_width: int
    norm_eps: float
    rope: dict[str, Any]
    vocab_size: int
    context_limit: int
    special_ids: tuple[int, ...]

    @classmethod
    def of_target(cls, loaded: LoadedTarget, boundaries: tuple[int, ...] | None) -> Self:
        """boundaries None: `default_boundaries`. Raises UnsupportedModelError, ConfigError."""
        info, model = loaded.target.info, loaded.target.runner.model
        config = model.config.get_text_config()
        chosen = boundaries or default_boundaries(info.num_layers)
        is_ascending = list(chosen) == sorted(set(chosen))
        if not is_ascending or chosen[0] < 2 or chosen[-1] > info.num_layers:
            raise ConfigError(f"boundaries {list(chosen)} must ascend within 2 to "
                              f"{info.num_layers}, the target's layers")  # fmt: skip
        if not loaded.target.runner.has_plain_head:
            raise UnsupportedModelError(
                f"{info.name} does more than one product in its head (a soft cap?); drafters are "
                "trained for plain heads only"
            )
        special = set(info.eos_ids) | loaded.tokenizer.special_ids
        return cls(
            name=info.name,
            fingerprint=info.fingerprint,
            tokenizer=loaded.tokenizer.fingerprint,
            architecture=info.architecture,
            boundaries=chosen,
            dtype=info.dtype,
            num_layers=info.num_layers,
            hidden_size=info.hidden_size,
            intermediate_size=int(config.intermediate_size),
            num_heads=int(config.num_attention_heads),
            num_kv_heads=int(config.num_key_value_heads),
            head_width=int(getattr(config, "head_dim", None)
                           or config.hidden_size // config.num_attention_heads),
            norm_eps=float(config.rms_norm_eps),
            rope=dict(config.rope_parameters),
            vocab_size=info.vocab_size,
            context_limit=info.context_limit,
            special_ids=(*info.eos_ids, *sorted(special - set(info.eos_ids))),
        )  # fmt: skip

    def write(self, folder: Path) -> None:
        """Notes them, or holds a later run to them. Raises ConfigError."""
        keep_settings(folder, {"format": _FORMAT, **asdict(self)})

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Raises ConfigError."""
        table = read_settings(folder, "features")
        if table.pop("format", None) != _FORMAT:
            raise ConfigError(f"{folder} was written by another version; take another folder")
        table["boundaries"] = tuple(table["boundaries"])
        table["special_ids"] = tuple(table["special_ids"])
        return cls(**table)


def require_target(found: str, wanted: str, work_dir: Path) -> None:
    """Raises ConfigError unless the target is the one that wrote the text."""
    if found != wanted:
        raise ConfigError(
            f"the text in {work_dir} was written by the target {wanted}, but this one is {found}; "
            "give its --model, or another --work-dir"
        )


def default_boundaries(num_layers: int) -> tuple[int, ...]:
    """2, n // 2, n - 3, as EAGLE-3 taps; every boundary from 2 on where those would coincide."""
    if num_layers >= _DEFAULT_BOUNDARIES_FROM:
        return 2, num_layers // 2, num_layers - 3
    return tuple(range(2, num_layers + 1))


@dataclass(frozen=True, slots=True)
class TargetEnds:
    """embedding and head: [vocabulary, h]; norm: [h], the weight in front of the head."""

    embedding: torch.Tensor
    head: torch.Tensor
    norm: torch.Tensor

    @classmethod
    def of_target(cls, loaded: LoadedTarget) -> Self:
        """Copies, on the CPU."""
        runner = loaded.target.runner
        embedding = runner.model.get_input_embeddings().weight
        assert isinstance(embedding, torch.Tensor)
        unit = torch.eye(embedding.shape[1], dtype=embedding.dtype, device=embedding.device)
        with torch.inference_mode():
            head = torch.cat([runner.logits(rows) for rows in unit.split(32)]).T
        norm = runner.model.base_model.get_submodule("norm").weight
        assert isinstance(norm, torch.Tensor)
        placed = (t.detach().cpu().contiguous() for t in (embedding, head, norm))
        return cls(*(t.float() if t.dtype == torch.float64 else t for t in placed))

    def write(self, folder: Path) -> None:
        """Beside the features."""
        save_file({"embedding": self.embedding, "head": self.head.contiguous(),
                   "norm": self.norm}, folder / _ENDS)  # fmt: skip

    @classmethod
    def read(cls, folder: Path, device: torch.device) -> Self:
        """Raises ConfigError if they are not there."""
        path = folder / _ENDS
        if not path.is_file():
            raise ConfigError(f"{path} is missing; run `whiflash train features` again")
        return cls(**load_file(path, device=str(device)))
