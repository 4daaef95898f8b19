"""What a checkpoint may look like, what each variant computes, and what is refused by name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional

from whiflash.core.errors import ConfigError, ModelError, UnsupportedModelError
from whiflash.core.rows import CatchUp, DraftRow
from whiflash.drafters.eagle3 import Eagle3Drafter, Eagle3Options, load
from whiflash.drafters.spec import DrafterSpec
from whiflash.models.draft.target_parts import TargetParts

DATA = Path(__file__).parents[3] / "data" / "eagle3_tiny"
Edit = Callable[[dict[str, Any], dict[str, torch.Tensor]], None]
CHAIN = Eagle3Options(tree="chain", depth=4, nodes=4, top_k=1)


@pytest.fixture
def edited(tmp_path: Path) -> Callable[..., Path]:
    """A copy of a fixture's checkpoint with its config and tensors changed."""

    def make(edit: Edit, layout: str = "draft") -> Path:
        folder = tmp_path / "draft"
        shutil.copytree(DATA / layout, folder)
        config = json.loads((folder / "config.json").read_text())
        tensors = load_file(folder / "model.safetensors")
        edit(config, tensors)
        (folder / "config.json").write_text(json.dumps(config))
        save_file(tensors, folder / "model.safetensors")
        return folder

    return make


def set_key(key: str, value: Any) -> Edit:
    return lambda config, _: config.update({key: value})


def taps(*layers: int) -> Edit:
    return set_key("eagle_aux_hidden_state_layer_ids", list(layers))


def nested_taps(config: dict[str, Any], _: dict[str, torch.Tensor]) -> None:
    config["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": [1, 3, 7]}


def rope(**params: Any) -> Edit:
    return set_key("rope_scaling", params)


def test_bin_and_shards_are_the_same_drafter(
    edited: Callable[..., Path], target_parts: TargetParts
) -> None:
    folder = edited(lambda *_: None)
    first = load(folder, target_parts)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    assert load(folder, target_parts).weight_hash == first.weight_hash
    (folder / "pytorch_model.bin").unlink()
    places = {}
    for number, names in enumerate([sorted(tensors)[:6], sorted(tensors)[6:]]):
        file_name = f"model-0000{number}.safetensors"
        save_file({name: tensors[name] for name in names}, folder / file_name)
        places |= dict.fromkeys(names, file_name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    assert load(folder, target_parts).weight_hash == first.weight_hash


@pytest.mark.parametrize(
    ("layout", "edit", "expected"),
    [
        ("draft", taps(1, 3, 4), (2, 4, 5)),
        ("draft", taps(2, 4, 5), (2, 4, 5)),
        (
            "draft",
            set_key("eagle_config", {"eagle_aux_hidden_state_layer_ids": [1, 3, 7]}),
            (2, 4, 8),
        ),
        ("draft_speculators", taps(1, 3, 4), (1, 3, 4)),
        ("draft_speculators", set_key("eagle_aux_hidden_state_layer_ids", None), (2, 4, 5)),
    ],
)
def test_layer_numbers_become_boundaries(
    edited: Callable[..., Path],
    target_parts: TargetParts,
    layout: str,
    edit: Edit,
    expected: tuple[int, ...],
) -> None:
    """vLLM #40727 and PR 50170: taps one layer off cost nearly all acceptance, and no error."""
    drafter = load(edited(edit, layout), target_parts)
    assert drafter.boundaries == expected
    assert any(str(list(expected)) in note for note in drafter.notes)
    asked = load(DATA / layout, target_parts, Eagle3Options(boundaries=(1, 2, 8)))
    assert asked.boundaries == (1, 2, 8)
    assert asked.weight_hash != drafter.weight_hash


def lossy(**method: Any) -> Edit:
    return lambda config, _: config["speculators_config"]["proposal_methods"][0].update(method)


UNSUPPORTED: list[tuple[str, str, Edit]] = [
    ("draft", "P-EAGLE", set_key("architectures", ["LlamaForCausalLMPEagle"])),
    ("draft", "P-EAGLE", lambda _, tensors: tensors.update(mask_hidden=torch.zeros(1, 64))),
    ("draft_speculators", "P-EAGLE", set_key("speculators_model_type", "peagle")),
    ("draft", "DFlash2DraftModel", set_key("architectures", ["DFlash2DraftModel"])),
    ("draft", "architecture", set_key("architectures", [])),
    ("draft_speculators", "'dflash'", set_key("speculators_model_type", "dflash")),
    ("draft_speculators", "lossy", lossy(verifier_accept_k=4)),
    ("draft_speculators", "lossy", lossy(accept_tolerance=0.1)),
    ("draft", "norm_output", set_key("norm_output", False)),
    ("draft", "use_aux_hidden_state", set_key("eagle_config", {"use_aux_hidden_state": False})),
    ("draft", "hidden_act", set_key("hidden_act", "gelu")),
    ("draft", "'mistral'", set_key("model_type", "mistral")),
    ("draft", "'dynamic'", set_key("rope_scaling", {"rope_type": "dynamic", "factor": 2.0})),
    ("draft", "'longrope'", set_key("rope_scaling", {"type": "longrope"})),
    (
        "draft",
        "mrope_section",
        rope(type="default", mrope_section=[2, 3]),
    ),
]


@pytest.mark.parametrize(("layout", "name", "edit"), UNSUPPORTED)
def test_unsupported_variants_are_refused_by_name(
    edited: Callable[..., Path], target_parts: TargetParts, layout: str, name: str, edit: Edit
) -> None:
    with pytest.raises(UnsupportedModelError, match=name) as caught:
        load(edited(edit, layout), target_parts)
    assert "\n" not in str(caught.value)


def fuse_qkv(_: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    parts = [tensors.pop(f"midlayer.self_attn.{name}_proj.weight") for name in "qkv"]
    tensors["midlayer.self_attn.qkv_proj.weight"] = torch.cat(parts)


def drop(name: str) -> Edit:
    def edit(_: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        del tensors[name]

    return edit


def put(name: str, tensor: torch.Tensor) -> Edit:
    return lambda _, tensors: tensors.update({name: tensor})


DAMAGED: list[tuple[str, str, Edit]] = [
    ("draft", "qkv_proj", fuse_qkv),
    ("draft", "sinks", put("midlayer.self_attn.sinks", torch.zeros(4))),
    ("draft", "layers.0.mlp.up_proj.weight", drop("midlayer.mlp.up_proj.weight")),
    ("draft", "fc_norm.0.weight", set_key("fc_norm", True)),
    ("draft", "exclude", lambda c, _: c.update(fc_norm=True, norm_before_fc=True)),
    ("draft", "fc.weight has the shape", put("fc.weight", torch.zeros(64, 128))),
    ("draft", "d2t and t2d", drop("t2d")),
    ("draft", "disagree", put("d2t", torch.zeros(128, dtype=torch.int64))),
    ("draft", "do not fit", put("t2d", torch.ones(300, dtype=torch.bool))),
    ("draft", "made for a target of 300 ids", set_key("vocab_size", 300)),
    ("draft", "taps of 96 numbers", set_key("target_hidden_size", 96)),
    ("draft", "hidden_size", set_key("hidden_size", "64")),
    ("draft", "must be a list", set_key("eagle_aux_hidden_state_layer_ids", "2,4,5")),
    ("draft", "must ascend", taps(2, 4, 9)),
    ("draft", "must ascend", taps(0, 4, 5)),
    ("draft", "must ascend", taps(4, 4, 5)),
    ("draft", "embed_tokens", put("embed_tokens.weight", torch.zeros(256, 32))),
    (
        "draft_speculators",
        "transformer_layer_config",
        set_key("transformer_layer_config", 1),
    ),
    ("draft_speculators", "verifier_lm_head", put("verifier_lm_head.weight", torch.zeros(2, 2))),
]


@pytest.mark.parametrize(("layout", "name", "edit"), DAMAGED)
def test_damage_and_misfits_are_named(
    edited: Callable[..., Path], target_parts: TargetParts, layout: str, name: str, edit: Edit
) -> None:
    with pytest.raises(ModelError, match=name) as caught:
        load(edited(edit, layout), target_parts)
    assert "\n" not in str(caught.value)


def test_targets_that_do_not_fit(target_parts: TargetParts) -> None:
    with pytest.raises(ModelError, match="boundaries="):
        load(DATA / "draft", replace(target_parts, num_layers=6))
    with pytest.raises(ModelError, match="wide"):
        load(DATA / "draft", replace(target_parts, embedding=torch.zeros(256, 32)))


def test_the_published_position_limit_limits_nothing(
    edited: Callable[..., Path], target_parts: TargetParts
) -> None:
    """vLLM #48894: tables sized by a head's max_position_embeddings (2,048 beside a target of
    131,072) made acceptance collapse."""
    short = load(edited(set_key("max_position_embeddings", 16)), target_parts)
    assert short.context_limit == 512
    positions = np.arange(400)
    for found, expected in zip(
        short._turns(positions), load(DATA / "draft", target_parts)._turns(positions), strict=True
    ):
        assert torch.equal(found, expected)


def test_specs() -> None:
    def options(text: str) -> Eagle3Options:
        return Eagle3Options.of_spec(DrafterSpec.parse(text))

    spec = DrafterSpec.parse("eagle3:a,b/c=d,tree=talon,nodes=20,mu=0.1,boundaries=2+4+5")
    assert spec.place == "a,b/c=d"
    expected = replace(Eagle3Options.of_tree("talon"), nodes=20, mu=0.1, boundaries=(2, 4, 5))
    assert Eagle3Options.of_spec(spec) == expected
    assert options("eagle3:x") == Eagle3Options()
    assert options("eagle3:x,tree=chain,depth=3").nodes == 3
    for text, flaw in {
        "tree=beam": "one of chain, eagle2, talon",
        "depth=0": "at least 1",
        "mu=2": r"\(0, 1\]",
        "mu=many": "mu=many",
        "boundaries=2-4": "boundaries",
        "accept_tolerance=0.1": "no option 'accept_tolerance'",
        "depth=1,depth=2": "twice",
        "tree=chain,top_k=3": "one child",
    }.items():
        with pytest.raises(ConfigError, match=flaw):
            options(f"eagle3:x,{text}")


def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight


def turned(x: torch.Tensor) -> torch.Tensor:
    """[n, heads, 16], rotary position i for row i, theta 1e6."""
    rates = 1e6 ** (-torch.arange(8) / 8)
    angles = torch.arange(len(x))[:, None] * rates
    cosines, sines = angles.cos()[:, None], angles.sin()[:, None]
    left, right = x[..., :8], x[..., 8:]
    return torch.cat([left * cosines - right * sines, right * cosines + left * sines], dim=-1)


def written_out(
    w: dict[str, torch.Tensor], config: dict[str, Any], e: torch.Tensor, taps: torch.Tensor
) -> torch.Tensor:
    """Draft logits of all positions, recomputed without a cache, formula by formula."""
    if "input_norm.weight" in w:
        taps = norm(taps, w["input_norm.weight"])
    if "fc_norm.0.weight" in w:
        parts = taps.split(64, -1)
        taps = torch.cat([norm(p, w[f"fc_norm.{i}.weight"]) for i, p in enumerate(parts)], -1)
    g = taps @ w["fc.weight"].T
    count = len(g)
    hidden = torch.full((count, count), -torch.inf).triu(1)
    for number in range(config["transformer_layer_config"]["num_hidden_layers"]):
        name = f"layers.{number}."
        residual, x = g, norm(g, w[name + "input_layernorm.weight"])
        if number == 0:
            normed = norm(g, w[name + "hidden_norm.weight"])
            x = torch.cat([norm(e, w[name + "input_layernorm.weight"]), normed], -1)
            residual = normed if config["norm_before_residual"] else g
        q, k, v = ((x @ w[f"{name}self_attn.{p}_proj.weight"].T).view(count, -1, 16) for p in "qkv")
        if name + "self_attn.q_norm.weight" in w:
            q, k = (norm(t, w[f"{name}self_attn.{p}_norm.weight"]) for t, p in ((q, "q"), (k, "k")))
        q, k = turned(q), turned(k).repeat_interleave(2, 1)
        odds = (torch.einsum("ihd,jhd->hij", q, k) / 4 + hidden).softmax(-1)
        attended = torch.einsum("hij,jhd->ihd", odds, v.repeat_interleave(2, 1)).reshape(count, -1)
        y = residual + attended @ w[name + "self_attn.o_proj.weight"].T
        z = norm(y, w[name + "post_attention_layernorm.weight"])
        gate = functional.silu(z @ w[name + "mlp.gate_proj.weight"].T)
        up = z @ w[name + "mlp.up_proj.weight"].T
        g = y + (gate * up) @ w[name + "mlp.down_proj.weight"].T
    return norm(g, w["norm.weight"]) @ w["lm_head.weight"].T


def add_layer(config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    config["transformer_layer_config"]["num_hidden_layers"] = 2
    for name in [name for name in tensors if name.startswith("layers.0.")]:
        twin, weight = name.replace("layers.0.", "layers.1."), tensors[name]
        if "hidden_norm" not in name:
            is_wide = name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))
            tensors[twin] = (weight[:, 64:] if is_wide else weight.flip(0)).clone()


def add_norms(*names: str, width: int) -> Edit:
    generator = torch.Generator().manual_seed(3)

    def edit(_: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        for name in names:
            tensors[name] = 0.5 + torch.rand(width, generator=generator)

    return edit


def both(*edits: Edit) -> Edit:
    def edit(config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        for each in edits:
            each(config, tensors)

    return edit


def qwen3(config: dict[str, Any], _: dict[str, torch.Tensor]) -> None:
    config["transformer_layer_config"]["model_type"] = "qwen3"


HEAD_NORMS = [f"layers.0.self_attn.{name}_norm.weight" for name in "qk"]
FC_NORMS = [f"fc_norm.{number}.weight" for number in range(3)]
VARIANTS: dict[str, Edit] = {
    "plain": lambda *_: None,
    "norm_before_residual": set_key("norm_before_residual", True),
    "norm_before_fc": both(
        set_key("norm_before_fc", True), add_norms("input_norm.weight", width=192)
    ),
    "fc_norm": both(set_key("fc_norm", True), add_norms(*FC_NORMS, width=64)),
    "qwen3": both(qwen3, add_norms(*HEAD_NORMS, width=16)),
    "two layers": add_layer,
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_compute_what_their_formulas_say(
    edited: Callable[..., Path], target_parts: TargetParts, variant: str
) -> None:
    """Cached, absorbed in pieces and drafted step by step, against one cacheless recompute."""
    folder = edited(VARIANTS[variant], "draft_speculators")
    config = json.loads((folder / "config.json").read_text())
    weights = load_file(folder / "model.safetensors")
    drafter = load(folder, target_parts, CHAIN)
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, 250, (20,), generator=generator)
    taps = torch.randn(19, 192, generator=generator)
    drafter.open(1, "test", np.zeros(0, np.int32), np.zeros(0, np.int32))
    for start, end in ((0, 4), (4, 5), (5, 19)):
        window = ids[start : end + 1].numpy().astype(np.int32)
        drafter.absorb([CatchUp(1, start, window, drafter.fuse(taps[start:end]))])
    row = DraftRow(1, "test", ids.numpy().astype(np.int32), 9, 9)
    with torch.inference_mode():
        found = drafter._first_step([(drafter._open[1], row)])[1][0]
    expected = written_out(weights, config, target_parts.embedding[ids[1:]], taps)[-1]
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
    assert len(drafter.propose([row])[0]) == 4


def test_a_normed_output_is_fed_back(
    edited: Callable[..., Path], target_parts: TargetParts
) -> None:
    """EAGLE-3.1 of speculators: the next step gets norm(out); SpecForge's key of the same name
    says something else and changes nothing there."""
    fed: list[torch.Tensor] = []
    for layout, is_fed in (("draft_speculators", True), ("draft", False)):
        folder = edited(set_key("norm_output", True), layout)
        drafter: Eagle3Drafter = load(folder, target_parts, CHAIN)
        out = torch.randn(3, 64, generator=torch.Generator().manual_seed(2))
        feature, logits = drafter._body.finish(out)
        normed = norm(out, load_file(folder / "model.safetensors")["norm.weight"])
        torch.testing.assert_close(feature, normed if is_fed else out)
        fed.append(logits)
        shutil.rmtree(folder)
    assert torch.equal(*fed)


def test_an_own_embedding_is_used(edited: Callable[..., Path], target_parts: TargetParts) -> None:
    own = torch.randn(256, 64, generator=torch.Generator().manual_seed(2))
    drafter = load(edited(put("embed_tokens.weight", own)), target_parts)
    assert torch.equal(drafter._embed(np.array([5], np.int32))[0], own[5])
    assert "embedding of its own" in drafter.notes
