"""Loading end to end on a toy folder: choice, proof, measurements kept, options refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, LlamaForCausalLM, Phi3Config

from whiflash.core.costs import CostCurve
from whiflash.core.errors import ConfigError, ModelError, UnsupportedModelError
from whiflash.models.files import ModelFiles
from whiflash.target import choice, load
from whiflash.target.assembly import (
    KERNEL,
    PACKED,
    PLAIN,
    SDPA,
    TargetSettings,
    attention_for,
    build_target,
    fix_longrope,
    read_model,
)
from whiflash.target.choice import candidates, choose
from whiflash.target.load import load_target
from whiflash.target.measured import (
    Measurement,
    measured_folder,
    measurement_path,
    read_measurement,
    write_measurement,
)
from whiflash.testing.toy import CONTEXT_LIMIT, EOS_ID, VOCAB_SIZE, toy_model, write_toy

MEASUREMENT = Measurement(
    TargetSettings("bfloat16", KERNEL, PACKED, 2),
    "why",
    "bitwise",
    (),
    CostCurve(((1, 2.5), (8, 3.0))),
)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHIFLASH_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toy(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def toy32(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy stored in float32, so that there is a dtype to choose."""
    folder = write_toy(tmp_path_factory.mktemp("toy32"))
    toy_model().to(torch.float32).save_pretrained(folder)
    return folder


# -- the whole way ----------------------------------------------------------------------------


def test_toy_loads_and_describes_itself(toy: Path) -> None:
    loaded = load_target(str(toy))
    info = loaded.target.info
    assert (info.dtype, info.linears, info.attention) == ("float64", PLAIN, KERNEL)
    assert (info.num_layers, info.hidden_size, info.vocab_size) == (2, 32, VOCAB_SIZE)
    assert info.architecture == "LlamaForCausalLM"
    assert info.context_limit == CONTEXT_LIMIT
    assert info.eos_ids == (EOS_ID,)
    assert info.weight_bytes == 8 * ModelFiles.at(toy).num_parameters()
    # 2 layers x (K and V) x 2 heads x 8 numbers x 8 bytes
    assert info.cache_bytes_per_token >= 2 * 2 * 2 * 8 * 8
    assert info.exactness in ("bitwise", "epsilon")
    assert len(loaded.target.verify_curve.points) == 9
    assert loaded.path == toy.resolve()
    assert loaded.tokenizer.decode(loaded.tokenizer.encode("a van")) == "a van"


def test_second_start_uses_what_was_measured(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_target(str(toy)).target
    monkeypatch.setattr(load.curve, "agrees", lambda *_: True)
    monkeypatch.setattr(load.curve, "measure_curve", lambda *_: pytest.fail("measured again"))
    second = load_target(str(toy)).target
    assert second.verify_curve == first.verify_curve
    assert second.info == first.info


def test_stale_curve_is_measured_again(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_target(str(toy))
    fresh = CostCurve(((1, 123.0),))
    monkeypatch.setattr(load.curve, "agrees", lambda *_: False)
    monkeypatch.setattr(load.curve, "measure_curve", lambda *_: fresh)
    assert load_target(str(toy)).target.verify_curve == fresh
    monkeypatch.setattr(load.curve, "agrees", lambda *_: True)
    monkeypatch.setattr(load.curve, "measure_curve", lambda *_: pytest.fail("measured again"))
    assert load_target(str(toy)).target.verify_curve == fresh


def test_bitwise_claim_is_checked_again(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kept `bitwise` that this start cannot confirm is not believed."""
    load_target(str(toy))
    (kept,) = measured_folder().glob("*.json")
    claim = read_measurement(kept)
    assert claim is not None
    write_measurement(kept, replace(claim, exactness="bitwise", failed=()))
    monkeypatch.setattr(load.curve, "agrees", lambda *_: True)
    found = load.exactness.Exactness(("chain of 8",))
    monkeypatch.setattr(load.exactness, "find_exactness", lambda *_, **__: found)
    monkeypatch.setattr(choice, "find_exactness", lambda *_, **__: found)
    info = load_target(str(toy)).target.info
    assert info.exactness == "epsilon"
    assert any("chain of 8" in note for note in info.notes)


def test_auto_chooses_by_measurement_and_says_why(toy32: Path) -> None:
    info = load_target(str(toy32)).target.info
    assert info.dtype in ("bfloat16", "float32")
    assert info.notes[0].startswith("measured at 1 and 8 rows: ")
    assert "float32 packed" in info.notes[0]
    is_rounded = "weights stored as float32 are rounded to bfloat16" in info.notes
    assert is_rounded == (info.dtype == "bfloat16")


def test_unwritable_cache_is_noted_not_fatal(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WHIFLASH_CACHE", str(tmp_path / "file"))
    assert any("could not be kept" in note for note in load_target(str(toy)).target.info.notes)


@pytest.mark.gpu
def test_toy_on_cuda(toy32: Path) -> None:
    info = load_target(str(toy32), device="cuda", dtype="bfloat16").target.info
    assert (info.attention, info.linears, info.device) == (SDPA, PLAIN, "cuda:0")
    assert info.exactness in ("bitwise", "epsilon")


# -- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"dtype": "float99"}, "float99"),
        ({"device": "tpu"}, "tpu"),
        ({"attention": "paged"}, "paged"),
        ({"context_limit": CONTEXT_LIMIT + 1}, "context_limit"),
    ],
)
def test_wrong_options(toy: Path, options: dict[str, object], word: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_target(str(toy), **options)  # type: ignore[arg-type]
    assert word in str(error.value)
    assert "\n" not in str(error.value)


def test_cuda_without_a_gpu(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="no GPU"):
        load_target(str(toy), device="cuda")


def test_wrong_thread_count(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHIFLASH_THREADS", "two")
    with pytest.raises(ConfigError, match="WHIFLASH_THREADS"):
        load_target(str(toy))


def test_weights_beyond_memory(toy: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="do not fit cpu"):
        load_target(str(toy), free_bytes=1000)


def test_missing_weights_are_named(toy: Path, tmp_path: Path) -> None:
    model = toy_model()
    kept = {name: value for name, value in model.state_dict().items() if "layers.1.mlp" not in name}
    LlamaForCausalLM.save_pretrained(model, tmp_path, state_dict=kept)
    with pytest.raises(ModelError, match="lacks 3 weights") as error:
        read_model(ModelFiles.at(tmp_path), AutoConfig.from_pretrained(toy), torch.float64, "cpu")
    assert "mlp" in str(error.value)


def test_damaged_weights_are_named(toy: Path, tmp_path: Path) -> None:
    folder = write_toy(tmp_path / "m")
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelError, match="cut short"):
        load_target(str(folder))


# -- choice -----------------------------------------------------------------------------------


def test_candidates_by_stored_dtype_and_device() -> None:
    found = candidates("auto", torch.float32, "cpu", "auto")
    labels = {option.label for option in found}
    assert "float32 plain" in labels
    assert all(option.attention == KERNEL for option in found)
    assert [option.label for option in candidates("auto", torch.float64, "cpu", "auto")] == [
        "float64 plain"
    ]
    (on_gpu,) = candidates("auto", torch.float16, "cuda", "auto")
    assert (on_gpu.dtype, on_gpu.attention, on_gpu.linears) == ("float16", SDPA, PLAIN)


def test_asked_attention_that_cannot_run() -> None:
    assert attention_for("auto", torch.float16, "cpu") == SDPA
    assert attention_for("sdpa", torch.float32, "cpu") == SDPA
    with pytest.raises(ConfigError, match="kernel runs on cpu"):
        attention_for("kernel", torch.bfloat16, "cuda")


@pytest.mark.parametrize(
    ("times", "bitwise", "taken"),
    [
        ((10.0, 12.0), (True, True), 0),
        ((12.0, 10.0), (True, True), 1),
        ((10.0, 14.0), (False, True), 1),
        ((10.0, 30.0), (False, True), 1),
        ((12.0, 10.0), (False, False), 1),
    ],
)
def test_fastest_bitwise_whatever_the_others_take(
    times: tuple[float, float],
    bitwise: tuple[bool, bool],
    taken: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = [
        TargetSettings("bfloat16", KERNEL, PACKED),
        TargetSettings("float32", KERNEL, PACKED),
    ]
    monkeypatch.setattr(
        choice,
        "settle_min_rows",
        lambda settings, target, _: (settings, target, bitwise[options.index(settings)]),
    )
    monkeypatch.setattr(
        choice, "time_forwards", lambda target, _, sizes, *__: dict.fromkeys(sizes, times[target])
    )
    found = choose(options, lambda settings: options.index(settings), [])  # type: ignore[arg-type,return-value]
    assert found.settings == options[taken]
    assert f"{times[0]:.1f}" in found.reason
    assert ("not bitwise" in found.reason) == (False in bitwise)


# -- what is kept -----------------------------------------------------------------------------


def test_measurement_survives_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "m.json"
    assert write_measurement(path, MEASUREMENT) is None
    assert read_measurement(path) == MEASUREMENT
    assert [file.name for file in path.parent.iterdir()] == ["m.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"settings": {}}'])
def test_unreadable_measurement_is_no_measurement(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.json").write_text(text)
    assert read_measurement(tmp_path / "m.json") is None
    assert read_measurement(tmp_path / "missing.json") is None


def test_measurements_are_of_one_model_machine_and_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = measurement_path("model", "auto", "cpu")
    others = {measurement_path("other", "auto", "cpu"), measurement_path("model", "float32", "cpu")}
    monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    others.add(measurement_path("model", "auto", "cpu"))
    assert len(others | {path}) == 4


# -- longrope ---------------------------------------------------------------------------------


def phi3(context_limit: int) -> tuple[torch.Tensor, str | None]:
    torch.manual_seed(0)
    config = Phi3Config(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512,
        original_max_position_embeddings=128, pad_token_id=None,
        rope_parameters={
            "rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4,
            "long_factor": [4.0] * 4, "original_max_position_embeddings": 128,
        },
    )  # fmt: skip
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    note = fix_longrope(model, context_limit)
    ids = torch.arange(3, 43)[None]
    alone = model(input_ids=ids[:, :8]).logits[0, 7]
    # A far position in the same call switches transformers' own longrope to the long factors.
    far = torch.cat([torch.arange(39), torch.tensor([400])])[None]
    beside = model(input_ids=ids, position_ids=far).logits[0, 7]
    assert torch.allclose(alone, beside, atol=1e-6)
    return model.model.rotary_emb.inv_freq.clone(), note


def test_longrope_is_fixed_by_the_context_limit() -> None:
    short, short_note = phi3(128)
    long, long_note = phi3(512)
    assert torch.allclose(short, long * 4)
    assert "short factors" in str(short_note)
    assert "long factors" in str(long_note)
    assert fix_longrope(toy_model(), 512) is None


def test_shortened_model_reads_its_first_layers(toy: Path) -> None:
    config = AutoConfig.from_pretrained(toy)
    short = read_model(ModelFiles.at(toy), config, torch.float64, "cpu", 1)
    whole = read_model(ModelFiles.at(toy), config, torch.float64, "cpu")
    assert len(short.model.layers) == 1
    assert config.num_hidden_layers == 2
    assert torch.equal(
        short.model.layers[0].mlp.up_proj.weight, whole.model.layers[0].mlp.up_proj.weight
    )


def test_packed_settings_pack_every_layer() -> None:
    target = build_target(toy_model().to(torch.float32), TargetSettings("float32", SDPA, PACKED))
    kinds = {type(module).__name__ for module in target.runner.model.modules()}
    assert "PackedLinear" in kinds
    assert "Linear" not in kinds


def test_config_of_the_toy_is_untouched(toy: Path) -> None:
    before = (toy / "config.json").read_text()
    load_target(str(toy))
    assert (toy / "config.json").read_text() == before
    assert json.loads(before)["dtype"] == "float64"
