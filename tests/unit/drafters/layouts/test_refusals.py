"""Variants that other layouts know too are refused by name in every layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from whiflash.core.errors import ModelError, UnsupportedModelError

ConfigOf = Callable[[str], dict[str, Any]]
DFLASH = ("z-lab", "dflash of speculators")
EAGLE3 = ("SafeAILab", "eagle3 of speculators")
SCALES = (
    "output_multiplier", "final_logit_softcapping", "input_embedding_scale",
    "attention_value_scale",
)  # fmt: skip


def body_of(config: dict[str, Any]) -> dict[str, Any]:
    """The table of the decoder's own keys."""
    table: dict[str, Any] = config.get("transformer_layer_config", config)
    return table


@pytest.mark.parametrize("key", SCALES)
def test_numbers_that_would_be_scaled(
    layout: str, key: str, config_of: ConfigOf, load: Callable[..., Any]
) -> None:
    config = config_of(layout)
    body_of(config)[key] = 30.0
    with pytest.raises(UnsupportedModelError, match=key):
        load(layout, config)


@pytest.mark.parametrize(("k", "tolerance"), [(4, 0.0), (1, 0.1)])
def test_lossy_acceptance(
    layout: str, k: int, tolerance: float, config_of: ConfigOf, load: Callable[..., Any]
) -> None:
    """Wherever it stands: by method, or at the top."""
    asked = {"verifier_accept_k": k, "accept_tolerance": tolerance}
    config = config_of(layout)
    for changed in ({**config, **asked},
                    {**config, "speculators_config": {"proposal_methods": [asked]}}):  # fmt: skip
        with pytest.raises(UnsupportedModelError, match=f"lossy.*={k},.*={tolerance}"):
            load(layout, changed)


def test_settings_that_say_nothing_are_no_variant(
    layout: str, config_of: ConfigOf, load: Callable[..., Any]
) -> None:
    config = config_of(layout)
    body_of(config).update(
        output_multiplier=1.0, input_embedding_scale=1, attention_value_scale=None,
        use_sliding_window=None,
    )  # fmt: skip
    config.update(verifier_accept_k=1, accept_tolerance=0, shift_label=False, projector_type=None)
    if layout == "z-lab":
        config["dflash_config"].update(shift_label=False, conv_kernel_size=None, markov_rank=0)
    assert load(layout, config) is not None


@pytest.mark.parametrize("layout", DFLASH)
@pytest.mark.parametrize(
    ("key", "what"),
    [
        ("conv_kernel_size", "DFlash 2"),
        ("selector_top_k", "DFlash 2"),
        ("markov_rank", "DSpark"),
        ("gru_hidden_dim", "Domino"),
        ("emb_dim", "Domino"),
        ("shift_label", "shifted labels"),
    ],
)
def test_keys_of_other_block_drafters(
    layout: str, key: str, what: str, config_of: ConfigOf, load: Callable[..., Any]
) -> None:
    with pytest.raises(UnsupportedModelError, match=f"{key}: .*{what}"):
        load(layout, {**config_of(layout), key: 4})


@pytest.mark.parametrize("layout", DFLASH)
@pytest.mark.parametrize("kind", ["domino", "dspark"])
def test_projectors(layout: str, kind: str, config_of: ConfigOf, load: Callable[..., Any]) -> None:
    with pytest.raises(UnsupportedModelError, match=f"projector_type '{kind}'"):
        load(layout, {**config_of(layout), "projector_type": kind})


@pytest.mark.parametrize("layout", DFLASH)
@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("markov_head.weight", "DSpark"),
        ("confidence_head.weight", "DSpark"),
        ("projector.gru.weight_ih_l0", "Domino"),
        ("layers.0.mlp.gate_up_proj.weight", "fused projections"),
        ("layers.1.mlp_conv.kernel_projection.weight", "DFlash 2"),
    ],
)
def test_tensors_of_other_block_drafters(
    layout: str, name: str, what: str, load: Callable[..., Any]
) -> None:
    with pytest.raises(UnsupportedModelError, match=what):
        load(layout, None, {name: torch.zeros(2)})


def test_a_tensor_that_nobody_uses(layout: str, load: Callable[..., Any]) -> None:
    with pytest.raises(ModelError, match=r"no use for: .*extra\.weight"):
        load(layout, None, {"extra.weight": torch.zeros(2)})


@pytest.mark.parametrize("layout", DFLASH)
def test_layers_that_slide_without_saying_which(
    layout: str, config_of: ConfigOf, load: Callable[..., Any]
) -> None:
    config = config_of(layout)
    body_of(config).update(use_sliding_window=True, sliding_window=16)
    assert load(layout, config) is not None  # layer_types says that none does
    body_of(config)["layer_types"] = None
    with pytest.raises(UnsupportedModelError, match="use_sliding_window without layer_types"):
        load(layout, config)


@pytest.mark.parametrize("layout", EAGLE3)
@pytest.mark.parametrize(
    "window", [{"layer_types": ["sliding_attention"]}, {"use_sliding_window": True}]
)
def test_eagle3_layers_with_a_window(
    layout: str, window: dict[str, Any], config_of: ConfigOf, load: Callable[..., Any]
) -> None:
    config = config_of(layout)
    body_of(config).update(window)
    with pytest.raises(UnsupportedModelError, match="windowed attention"):
        load(layout, config)
