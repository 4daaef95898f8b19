"""A toy model in the ordinary folder layout: two Llama layers, float64, a vocabulary of 64.

Small enough for exhaustive tests, float64 so that no two paths differ by rounding that matters,
and read by the ordinary loader, so that tests run the code that serves.
"""

from __future__ import annotations

import json
from pathlib import Path

import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from whiflash.models.quiet import quiet_libraries

UNK_ID, BOS_ID, EOS_ID = 0, 1, 2
SPECIAL_TOKENS = ("<unk>", "<s>", "</s>")
SYMBOLS = "abcdefghijklmnopqrstuvwxyz0123456789 \n.,:;!?\"'()[]{}<>/_-+=*#"
VOCAB_SIZE = len(SPECIAL_TOKENS) + len(SYMBOLS)
CONTEXT_LIMIT = 512

# Spread of each kind of weight, found by trying: texts at 3 to 5 bits a symbol that
# neither loop nor are noise (seed 0); triples repeat, so that retrieval has something to find.
_ATTENTION_SPREAD = 1.5
_MLP_SPREAD = 1.0
_HEAD_SPREAD = 4.0


def toy_config() -> LlamaConfig:
    """The model's configuration."""
    return LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=CONTEXT_LIMIT,
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
        pad_token_id=None,
        tie_word_embeddings=False,
        dtype="float64",
    )


def toy_model(seed: int = 0) -> LlamaForCausalLM:
    """The model with weights that depend on `seed` alone, in float64 and evaluation mode."""
    model = LlamaForCausalLM(toy_config())
    model.double()
    model.train(False)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in sorted(model.named_parameters()):
            if "norm" in name:
                weight.fill_(1.0)
            else:
                noise = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
                weight.copy_(noise * _spread(name, weight.shape[-1]))
    return model


def _spread(name: str, num_inputs: int) -> float:
    if "embed" in name:
        return 1.0
    kinds = {"self_attn": _ATTENTION_SPREAD, "mlp": _MLP_SPREAD, "lm_head": _HEAD_SPREAD}
    spread = next(value for kind, value in kinds.items() if kind in name)
    return float(spread / num_inputs**0.5)


def toy_tokenizer() -> tokenizers.Tokenizer:
    """One id per symbol; every text over SYMBOLS survives encode and decode."""
    vocabulary = {token: i for i, token in enumerate((*SPECIAL_TOKENS, *SYMBOLS))}
    fast = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL_TOKENS[UNK_ID]))
    fast.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex("[\\s\\S]"), "isolated")
    fast.decoder = decoders.Fuse()
    fast.add_special_tokens(list(SPECIAL_TOKENS))
    return fast


def write_toy(folder: Path, seed: int = 0) -> Path:
    """Writes model, configuration and tokenizer into `folder` (made if missing), returned."""
    quiet_libraries()
    folder.mkdir(parents=True, exist_ok=True)
    model = toy_model(seed)
    defaults = {"bos_token_id": BOS_ID, "eos_token_id": EOS_ID}
    model.generation_config = GenerationConfig.from_dict(defaults)
    model.save_pretrained(folder)
    toy_tokenizer().save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": SPECIAL_TOKENS[UNK_ID],
        "bos_token": SPECIAL_TOKENS[BOS_ID],
        "eos_token": SPECIAL_TOKENS[EOS_ID],
        "clean_up_tokenization_spaces": False,
        "model_max_length": CONTEXT_LIMIT,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2), encoding="utf-8")
    return folder
