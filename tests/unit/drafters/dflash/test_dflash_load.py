"""Loading: every layout and file format, and every refusal by its name."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from whiflash.core.errors import ConfigError, ModelError, UnsupportedModelError
from whiflash.drafters.dflash import DFlashDrafter, DFlashOptions, load
from whiflash.drafters.dflash.config import default_boundaries
from whiflash.drafters.spec import DrafterSpec
from whiflash.models.draft.target_parts import TargetParts
from whiflash.testing.tap_rounds import PlainTarget, TapRounds

Edit = Callable[[dict[str, Any], dict[str, torch.Tensor]], None]
PROMPT = list(range(40, 60))


@pytest.fixture
def edited(golden: Path, tmp_path: Path) -> Callable[..., Path]:
    """edited(edit, source="draft") -> a copy of the checkpoint after edit(config, tensors)."""

    def make(edit: Edit, source: str = "draft") -> Path:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        config = json.loads((golden / source / "config.json").read_text())
        tensors = load_file(golden / source / "model.safetensors")
        edit(config, tensors)
        (folder / "config.json").write_text(json.dumps(config))
        save_file(tensors, folder / "model.safetensors")
        return folder

    return make


def config_edit(**changes: Any) -> Edit:
    """Keys of config.json, `dflash_config__x` for those of the table inside."""

    def edit(config: dict[str, Any], _: dict[str, torch.Tensor]) -> None:
        for key, value in changes.items():
            table, _, inner = key.partition("__")
            (config.setdefault(table, {}) if inner else config)[inner or key] = value

    return edit


def draft_of(folder: Path, target: PlainTarget, parts: TargetParts, **options: Any) -> list[int]:
    drafter = DFlashDrafter(load(folder, parts, DFlashOptions(**options)))
    rounds = TapRounds(target, drafter, PROMPT)
    return [int(token) for token in rounds.round().tokens]


@pytest.fixture
def expected(golden: Path, target: PlainTarget, target_parts: TargetParts) -> list[int]:
    return draft_of(golden / "draft", target, target_parts)


def test_a_bin_file_loads_like_safetensors(
    golden: Path, tmp_path: Path, target: PlainTarget, target_parts: TargetParts,
    expected: list[int],
) -> None:  # fmt: skip
    shutil.copy(golden / "draft" / "config.json", tmp_path)
    tensors = load_file(golden / "draft" / "model.safetensors")
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    assert draft_of(tmp_path, target, target_parts) == expected


def test_a_target_read_from_its_folder_serves_as_well(
    golden: Path, target: PlainTarget, expected: list[int]
) -> None:
    parts = TargetParts.of_folder(golden / "target", torch.float32, torch.device("cpu"))
    assert draft_of(golden / "draft", target, parts) == expected


def move_block_size(config: dict[str, Any], _: dict[str, torch.Tensor]) -> None:
    config["dflash_config"]["block_size"] = config.pop("block_size")


@pytest.mark.parametrize(
    "edit",
    [
        move_block_size,
        config_edit(dflash_config__mask_token_id=None, mask_token_id=255),
        config_edit(rope_theta=None, rope_parameters={"rope_type": "default", "rope_theta": 1e6}),
        config_edit(num_target_layers=None),
        config_edit(layer_types=None),
    ],
)
def test_other_spellings_of_the_same_checkpoint(
    edit: Edit,
    edited: Callable[..., Path],
    target: PlainTarget,
    target_parts: TargetParts,
    expected: list[int],
) -> None:
    assert draft_of(edited(edit), target, target_parts) == expected


def test_what_was_resolved_is_told(make_drafter: Callable, layout: str) -> None:
    drafter = make_drafter(layout)
    notes = " | ".join(drafter.notes)
    own = "own" if layout == "speculators" else "target"
    for piece in (
        f"{layout} layout",
        "boundaries 2+6",
        "block 8 of 8",
        "mask id 255",
        f"{own} head",
    ):
        assert piece in notes
    assert (drafter.context_limit, drafter.fused_width) == (512, 64)
    assert drafter.weight_hash == make_drafter("z-lab").weight_hash


def test_taps_of_other_boundaries_have_another_name(
    golden: Path, target_parts: TargetParts, make_drafter: Callable
) -> None:
    other = load(golden / "draft", target_parts, DFlashOptions(boundaries=(3, 6)))
    assert other.weight_hash != make_drafter().weight_hash


def test_default_boundaries_are_the_reference_s() -> None:
    """Layer outputs [1, 9, 17, 25, 33] of 36, and the middle for one layer."""
    assert default_boundaries(36, 5) == (2, 10, 18, 26, 34)
    assert default_boundaries(8, 2) == (2, 6)
    assert default_boundaries(36, 1) == (19,)


def reduce_vocabulary(config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    kept = torch.arange(0, 256, 2)
    config["draft_vocab_size"] = 128
    tensors["lm_head.weight"] = tensors["lm_head.weight"][kept].contiguous()
    tensors["d2t"] = kept - torch.arange(128)
    tensors["t2d"] = torch.arange(256) % 2 == 0


def borrow_reduced_head(config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    reduce_vocabulary(config, tensors)
    del tensors["lm_head.weight"], tensors["embed_tokens.weight"]


@pytest.mark.parametrize("edit", [reduce_vocabulary, borrow_reduced_head])
def test_a_smaller_vocabulary_drafts_the_best_of_its_ids(
    edit: Edit, edited: Callable[..., Path], target: PlainTarget, target_parts: TargetParts
) -> None:
    whole = DFlashDrafter(load(edited(lambda *_: None, "draft_speculators"), target_parts))
    rounds = TapRounds(target, whole, PROMPT)
    rounds.absorb()
    logits = whole.parts.head(whole._slots([(whole._open[0], rounds.row())], [7]))
    best = (2 * logits[:, ::2].argmax(-1)).tolist()
    assert draft_of(edited(edit, "draft_speculators"), target, target_parts) == best


REFUSED = {
    "DFlash2DraftModel": config_edit(architectures=["DFlash2DraftModel"]),
    "DSparkDraftModel": config_edit(architectures=["DSparkDraftModel"]),
    "DominoDraftModel": config_edit(architectures=["DominoDraftModel"]),
    "Qwen3ForCausalLM": config_edit(architectures=["Qwen3ForCausalLM"]),
    "projector_type 'domino'": config_edit(dflash_config__projector_type="domino"),
    "projector_type 'dspark'": config_edit(dflash_config__projector_type="dspark"),
    "conv_kernel_size": config_edit(dflash_config__conv_kernel_size=2),
    "selector_rank": config_edit(dflash_config__selector_rank=256),
    "final_logit_softcapping": config_edit(dflash_config__final_logit_softcapping=30.0),
    "input_embedding_scale": config_edit(dflash_config__input_embedding_scale=2.0),
    "shift_label": config_edit(dflash_config__shift_label=True),
    "'novelty'": config_edit(dflash_config__novelty=1),
    "chunked_attention": config_edit(layer_types=["chunked_attention", "full_attention"]),
    "hidden_act 'gelu'": config_edit(hidden_act="gelu"),
    "rope_type 'dynamic'": config_edit(rope_scaling={"rope_type": "dynamic", "factor": 2.0}),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_variants_are_refused_by_name(
    name: str, edited: Callable[..., Path], target_parts: TargetParts
) -> None:
    with pytest.raises(UnsupportedModelError, match=name):
        load(edited(REFUSED[name]), target_parts)


def proposal(**changes: Any) -> Edit:
    def edit(config: dict[str, Any], _: dict[str, torch.Tensor]) -> None:
        config["speculators_config"]["proposal_methods"][0].update(changes)

    return edit


REFUSED_SPECULATORS = {
    "speculators_model_type 'dspark'": config_edit(speculators_model_type="dspark"),
    "speculators_model_type 'eagle3'": config_edit(speculators_model_type="eagle3"),
    "sample_from_anchor": config_edit(sample_from_anchor=True),
    "verifier_accept_k=2": proposal(verifier_accept_k=2),
    r"accept_tolerance=0\.1": proposal(accept_tolerance=0.1),
}


@pytest.mark.parametrize("name", list(REFUSED_SPECULATORS))
def test_speculators_variants_are_refused_by_name(
    name: str, edited: Callable[..., Path], target_parts: TargetParts
) -> None:
    with pytest.raises(UnsupportedModelError, match=name):
        load(edited(REFUSED_SPECULATORS[name], "draft_speculators"), target_parts)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("layers.0.self_attn.qkv_proj.weight", "fused projections"),
        ("layers.0.self_attn.g_proj.weight", "gated attention"),
        ("aux_hidden_norms.0.weight", "Laguna"),
        ("encoder.fc.weight", "Muse-Glimmer"),
        ("mask_embedding", "mask embedding"),
        ("layers.0.self_attn.sinks", "attention sinks"),
        ("layers.0.attention_conv.base_kernel", "DFlash 2"),
        ("candidate_selector.predecessor_codebook", "DFlash 2"),
    ],
)
def test_foreign_tensors_give_the_variant_away(
    name: str, what: str, edited: Callable[..., Path], target_parts: TargetParts
) -> None:
    folder = edited(lambda _, tensors: tensors.update({name: torch.zeros(2)}))
    with pytest.raises(UnsupportedModelError, match=what):
        load(folder, target_parts)


def drop(name: str) -> Edit:
    def edit(_: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        del tensors[name]

    return edit


DAMAGED = {
    "layers.1.mlp.up_proj.weight": drop("layers.1.mlp.up_proj.weight"),
    "lacks the tensors fc.weight": drop("fc.weight"),
    "norm.bias": lambda _, tensors: tensors.update({"norm.bias": torch.zeros(64)}),
    "no mask_token_id": config_edit(dflash_config__mask_token_id=None),
    "mask_token_id 256 is beyond": config_edit(dflash_config__mask_token_id=256),
    "target of 300 ids": config_edit(vocab_size=300),
    "target of 9 layers": config_edit(num_target_layers=9),
    "does not take 3 taps": config_edit(dflash_config__target_layer_ids=[1, 3, 5]),
    "must ascend": config_edit(dflash_config__target_layer_ids=[5, 1]),
    r"within 1 to 8": config_edit(dflash_config__target_layer_ids=[1, 8]),
    "num_target_layers says where": lambda config, _: (
        config["dflash_config"].pop("target_layer_ids"),
        config.pop("num_target_layers"),
    ),
    "need sliding_window": config_edit(layer_types=["sliding_attention"] * 2),
    "3 layer_types for 2": config_edit(layer_types=["full_attention"] * 3),
    "hidden_size": config_edit(hidden_size="wide"),
}


@pytest.mark.parametrize("message", list(DAMAGED))
def test_what_is_missing_or_wrong_is_named(
    message: str, edited: Callable[..., Path], target_parts: TargetParts
) -> None:
    with pytest.raises(ModelError, match=message):
        load(edited(DAMAGED[message]), target_parts)


def test_a_target_of_another_width_is_refused(golden: Path, target_parts: TargetParts) -> None:
    wide = replace(target_parts, hidden_size=80)
    with pytest.raises(ModelError, match="does not take 2 taps of 80"):
        load(golden / "draft", wide)


@pytest.mark.parametrize("block", [1, 9])
def test_blocks_beyond_the_trained_one_are_refused(
    golden: Path, target_parts: TargetParts, block: int
) -> None:
    with pytest.raises(ConfigError, match="take 2 to 8"):
        load(golden / "draft", target_parts, DFlashOptions(block=block))


def test_options_of_a_spec() -> None:
    text = "dflash:/a,b/dir,block=4,boundaries=2+6,mask_id=0,context_limit=100"
    spec = DrafterSpec.parse(text)
    assert spec.place == "/a,b/dir"
    assert DFlashOptions.of_spec(spec) == DFlashOptions(4, 0, (2, 6), 100)
    assert DFlashOptions.of_spec(DrafterSpec.parse("dflash:d")) == DFlashOptions()


@pytest.mark.parametrize(
    "option", ["nodes=3", "block=0", "block=x", "mask_id=-1", "boundaries=2,6", "context_limit="]
)
def test_bad_options_are_refused(option: str) -> None:
    with pytest.raises(ConfigError):
        DFlashOptions.of_spec(DrafterSpec("dflash", "d", dict([option.split("=")])))
