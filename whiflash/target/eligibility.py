"""Which models the ragged target can run exactly. Others are refused by name, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from transformers import AutoConfig, PreTrainedConfig

from whiflash.core.errors import ModelError, UnsupportedModelError
from whiflash.models.files import ModelFiles

Table = Mapping[str, Any]

_RECURRENT_LAYERS = frozenset(
    ["linear_attention", "mamba", "mamba2", "conv", "recurrent", "hybrid", "hybrid_sliding"]
)
_RECURRENT_TYPES = frozenset(
    [
        "mamba",
        "mamba2",
        "falcon_mamba",
        "falcon_h1",
        "rwkv",
        "recurrent_gemma",
        "jamba",
        "zamba",
        "zamba2",
        "bamba",
        "nemotron_h",
        "granitemoehybrid",
        "lfm2",
        "lfm2_moe",
        "qwen3_next",
        "xlstm",
        "kimi_linear",
        "minimax",
        "bailing_hybrid",
        "olmo_hybrid",
    ]
)
_RECURRENT_KEYS = (
    "mamba_d_state",
    "ssm_state_size",
    "state_size",
    "lru_width",
    "conv_L_cache",
    "linear_conv_kernel_dim",
    "hybrid_override_pattern",
)
_INDEXER_LAYERS = frozenset(
    [
        "indexed_attention",
        "deepseek_sparse_attention",
        "qwen_sparse_attention",
        "minimax_m3_sparse",
        "compressed_sparse_attention",
        "heavily_compressed_attention",
    ]
)
_INDEXER_KEYS = ("index_topk", "index_n_heads", "index_head_dim")
_CHUNKED_LAYERS = {"chunked_attention", "window_attention", "reference_sliding_attention"}
_ALIBI_TYPES = {"bloom", "mpt"}
_OTHER_INPUTS = ("vision_config", "audio_config", "text_config")
_CAUSAL_CLASSES = ("ForCausalLM", "LMHeadModel")


def read_config(files: ModelFiles) -> PreTrainedConfig:
    """The model's config, if every check that needs no weights passes.

    Raises UnsupportedModelError naming what the model needs that is not there, ModelError if the
    config cannot be read.
    """
    if (files.folder / "adapter_config.json").is_file():
        raise UnsupportedModelError(
            f"{files.folder.name} is a LoRA adapter: merge it into its base model first "
            "(peft: merge_and_unload, then save_pretrained) and load the merged folder"
        )
    table = files.config_table()
    name = str(table.get("model_type") or files.folder.name)
    _refuse(name, table)
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(
            files.folder, local_files_only=True, trust_remote_code=False, **files.read_options
        )
    except (OSError, ValueError, KeyError, ImportError, TypeError) as error:
        raise _unreadable(files, name, error) from error
    full = config.to_dict()
    _refuse(config.model_type, full)
    reason = _not_causal(full)
    if reason is not None:
        raise UnsupportedModelError(f"{config.model_type} is not supported: {reason}")
    return config


def _unreadable(files: ModelFiles, name: str, error: Exception) -> ModelError:
    if "auto_map" in files.config_table():
        return UnsupportedModelError(
            f"{name} needs code that comes with the checkpoint; only models that transformers "
            "itself implements are run"
        )
    reason = str(error).strip().split("\n")[0]
    return UnsupportedModelError(f"{name} is not known to this transformers: {reason}")


def _refuse(name: str, table: Table) -> None:
    for check in _CHECKS:
        reason = check(table)
        if reason is not None:
            raise UnsupportedModelError(f"{name} is not supported: {reason}")


def _quantised(table: Table) -> str | None:
    method = (table.get("quantization_config") or {}).get("quant_method")
    if method is None or str(getattr(method, "value", method)) == "gguf":
        return None
    return (
        f"its weights are quantised ({getattr(method, 'value', method)}), and only GGUF is read, "
        "as float; load the unquantised checkpoint"
    )


def _encoder_decoder(table: Table) -> str | None:
    if table.get("is_encoder_decoder"):
        return "it is an encoder-decoder, which needs cross attention; decoder-only models are run"
    return None


def _recurrent(table: Table) -> str | None:
    kinds = _layer_kinds(table) & _RECURRENT_LAYERS
    keys = [key for key in _RECURRENT_KEYS if table.get(key) is not None]
    if not (kinds or keys or table.get("model_type") in _RECURRENT_TYPES):
        return None
    what = ", ".join(sorted(kinds) or keys or [str(table["model_type"])])
    return (
        f"it has recurrent or hybrid layers ({what}), whose state cannot be rolled back after a "
        "rejected draft; it needs a runner on transformers' own cache"
    )


def _indexer(table: Table) -> str | None:
    kinds = _layer_kinds(table) & _INDEXER_LAYERS
    if kinds or any(table.get(key) is not None for key in _INDEXER_KEYS):
        return (
            "its sparse attention picks keys with an indexer, which needs its own cache and mask; "
            "it needs a runner on transformers' own cache"
        )
    return None


def _chunked(table: Table) -> str | None:
    kinds = sorted(_layer_kinds(table) & _CHUNKED_LAYERS)
    if kinds or table.get("attention_chunk_size") is not None:
        return f"its attention is {kinds[0] if kinds else 'chunked'}; full and sliding ones are run"
    return None


def _rope(table: Table) -> str | None:
    for rope in _ropes(table):
        kind = str(rope.get("rope_type", rope.get("type", "default")))
        if "mrope_section" in rope or kind == "mrope":
            return "M-RoPE needs several positions per token; one position per token is run"
        if "dynamic" in kind:
            return (
                "dynamic RoPE changes a row's rotation with the longest row beside it; set a fixed "
                "rope type (yarn, linear, llama3, longrope) in config.json if the model allows it"
            )
    return None


def _alibi(table: Table) -> str | None:
    nested = table.get("attn_config")
    has_flag = bool(table.get("alibi")) or (isinstance(nested, dict) and bool(nested.get("alibi")))
    if has_flag or table.get("model_type") in _ALIBI_TYPES:
        return "ALiBi adds a bias to every attention score; rotary or learned positions are run"
    return None


def _other_inputs(table: Table) -> str | None:
    found = [key for key in _OTHER_INPUTS if table.get(key)]
    if found:
        return f"it takes more than text ({found[0]}); load its text model on its own"
    return None


def _not_causal(table: Table) -> str | None:
    classes = table.get("architectures") or []
    if classes and not any(str(name).endswith(_CAUSAL_CLASSES) for name in classes):
        return f"{classes[0]} is not a causal language model"
    return None


_CHECKS: tuple[Callable[[Table], str | None], ...] = (
    _quantised, _encoder_decoder, _recurrent, _indexer, _chunked, _rope, _alibi, _other_inputs,
)  # fmt: skip


def _layer_kinds(table: Table) -> set[str]:
    kinds: set[str] = set()
    for key in ("layer_types", "layers_block_type", "block_types"):
        value = table.get(key)
        if isinstance(value, list | tuple):
            kinds.update(str(kind) for kind in value)
    return kinds


def _ropes(table: Table) -> Iterator[Table]:
    """Every rope record: the old and the new key, flat or one per layer kind."""
    for key in ("rope_scaling", "rope_parameters"):
        value = table.get(key)
        if isinstance(value, dict):
            yield value
            yield from (nested for nested in value.values() if isinstance(nested, dict))
