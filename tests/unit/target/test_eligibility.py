"""Every refusal, from a config on disk, says in one line what the model would need."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from whiflash.core.errors import ModelError, UnsupportedModelError
from whiflash.models.files import ModelFiles
from whiflash.target.eligibility import read_config
from whiflash.target.memory import available_bytes, require_weights_fit

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
}


def folder_with(tmp_path: Path, config: dict[str, Any], name: str = "config.json") -> ModelFiles:
    (tmp_path / name).write_text(json.dumps(config))
    save_file({"w": torch.zeros(4, 8)}, tmp_path / "model.safetensors")
    return ModelFiles.at(tmp_path)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "mamba": ({"model_type": "mamba", "architectures": ["MambaForCausalLM"]}, "recurrent"),
    "qwen3-next": ({"model_type": "qwen3_next", "num_hidden_layers": 4}, "recurrent"),
    "linear layers": (
        {**LLAMA, "layer_types": ["linear_attention", "full_attention"]},
        "linear_attention",
    ),
    "rwkv": ({"model_type": "rwkv"}, "recurrent"),
    "deepseek-v3.2": ({"model_type": "deepseek_v32", "index_topk": 2048}, "indexer"),
    "chunked": ({**LLAMA, "layer_types": ["chunked_attention", "full_attention"]}, "chunked"),
    "dynamic rope": (
        {**LLAMA, "rope_scaling": {"type": "dynamic", "factor": 2.0}},
        "dynamic RoPE",
    ),
    "dynamic rope, new key": (
        {**LLAMA, "rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}},
        "dynamic RoPE",
    ),
    "dynamic rope of one layer kind": (
        {**LLAMA, "rope_parameters": {"full_attention": {"rope_type": "dynamic", "factor": 2.0}}},
        "dynamic RoPE",
    ),
    "m-rope": ({**LLAMA, "rope_scaling": {"mrope_section": [16, 24, 24]}}, "M-RoPE"),
    "alibi": ({"model_type": "falcon", "alibi": True}, "ALiBi"),
    "mpt": ({"model_type": "mpt"}, "ALiBi"),
    "bloom": ({"model_type": "bloom"}, "ALiBi"),
    "t5": (
        {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]},
        "encoder-decoder",
    ),
    "bert": ({"model_type": "bert", "architectures": ["BertForMaskedLM"]}, "causal"),
    "vision": ({"model_type": "gemma3", "text_config": {"hidden_size": 32}}, "text_config"),
    "remote code": (
        {"model_type": "home_made", "auto_map": {"AutoConfig": "configuration.Config"}},
        "comes with the checkpoint",
    ),
    "unknown type": ({"model_type": "home_made"}, "not known"),
}
METHODS = ["bitsandbytes", "gptq", "awq", "fp8", "compressed-tensors", "mxfp4"]
QUANTISED = {
    method: ({**LLAMA, "quantization_config": {"quant_method": method}}, method)
    for method in METHODS
}


@pytest.mark.parametrize(("config", "word"), [*REFUSED.values(), *QUANTISED.values()],
                         ids=[*REFUSED, *QUANTISED])  # fmt: skip
def test_refused_by_name(tmp_path: Path, config: dict[str, Any], word: str) -> None:
    with pytest.raises(UnsupportedModelError) as error:
        read_config(folder_with(tmp_path, config))
    message = str(error.value)
    assert word in message
    assert config["model_type"] in message
    assert "\n" not in message


def test_adapter_folder_is_refused(tmp_path: Path) -> None:
    files = folder_with(tmp_path, {"peft_type": "LORA"}, "adapter_config.json")
    with pytest.raises(UnsupportedModelError, match="LoRA adapter: merge"):
        read_config(files)


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"rope_scaling": {"rope_type": "yarn", "factor": 2.0,
                          "original_max_position_embeddings": 1024}},
        {"rope_scaling": {"type": "linear", "factor": 2.0}},
        {"layer_types": ["full_attention", "full_attention"]},
        {"quantization_config": None},
    ],
)  # fmt: skip
def test_plain_models_pass(tmp_path: Path, extra: dict[str, Any]) -> None:
    assert read_config(folder_with(tmp_path, {**LLAMA, **extra})).model_type == "llama"


@pytest.mark.parametrize(
    "model_type", ["qwen3", "qwen3_moe", "olmo3", "gpt_oss", "deepseek_v3", "gemma3_text", "phi3"]
)
def test_families_of_the_plan_pass(tmp_path: Path, model_type: str) -> None:
    config = {"model_type": model_type}
    assert read_config(folder_with(tmp_path, config)).model_type == model_type


def test_broken_config_is_named(tmp_path: Path) -> None:
    files = folder_with(tmp_path, LLAMA)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match="not valid JSON"):
        read_config(files)


def test_weights_beyond_the_device_show_the_arithmetic() -> None:
    with pytest.raises(UnsupportedModelError) as error:
        require_weights_fit(70_000_000_000, torch.bfloat16, "cpu", 24_000_000_000)
    message = str(error.value)
    for part in ("70.00 billion", "x 2 bytes (bfloat16) = 140.00 GB", "154.00 GB", "24.00 GB"):
        assert part in message
    require_weights_fit(1000, torch.float32, "cpu", 4400)
    with pytest.raises(UnsupportedModelError):
        require_weights_fit(1000, torch.float32, "cpu", 4399)


def test_free_memory_is_plausible() -> None:
    assert 10**7 < available_bytes("cpu") < 10**14


# -- files ------------------------------------------------------------------------------------


def test_parameters_are_counted_from_the_header(tmp_path: Path) -> None:
    assert folder_with(tmp_path, LLAMA).num_parameters() == 32


@pytest.mark.parametrize("keep", [4, 20, -3])
def test_damaged_weights_are_named(tmp_path: Path, keep: int) -> None:
    files = folder_with(tmp_path, LLAMA)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ModelError, match="fetch it again"):
        files.num_parameters()


def test_folder_without_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    with pytest.raises(ModelError, match=r"no \.safetensors"):
        ModelFiles.at(tmp_path)


def test_several_gguf_files_must_be_named(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    with pytest.raises(ModelError, match=r"a\.gguf, b\.gguf"):
        ModelFiles.at(tmp_path)
    assert ModelFiles.at(tmp_path / "a.gguf").gguf_name == "a.gguf"


def test_fingerprint_tells_fine_tunes_apart(tmp_path: Path) -> None:
    files = folder_with(tmp_path, LLAMA)
    before = files.fingerprint()
    assert before == files.fingerprint()
    save_file({"w": torch.ones(4, 8)}, tmp_path / "model.safetensors")
    tuned = files.fingerprint()
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "rms_norm_eps": 1e-4}))
    assert len({before, tuned, files.fingerprint()}) == 3
    with_path = {**LLAMA, "rms_norm_eps": 1e-4, "_name_or_path": "elsewhere"}
    last = files.fingerprint()
    (tmp_path / "config.json").write_text(json.dumps(with_path))
    assert files.fingerprint() == last
