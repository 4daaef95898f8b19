"""Whatever config.json says, it is taken as it is meant or refused in one line."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from whiflash.core.errors import WhiFlashError

Path = tuple[str | int, ...]
ODD: tuple[Any, ...] = (-1, 10**30, 0.5, "x", [], [1], [[]], {"a": 1}, True, None)
# Keys that loaders know and the golden files lack, at the top and in their tables.
MORE: tuple[Path, ...] = (
    *((key,) for key in (
        "architectures", "eagle_config", "dflash_config", "speculators_config", "fc_norm",
        "norm_before_fc", "norm_output", "rope_parameters", "partial_rotary_factor",
        "sliding_window", "use_sliding_window", "layer_types", "is_causal", "projector_type",
        "transformer_layer_config", "verifier_accept_k", "accept_tolerance", "mask_token_id",
        "eagle_aux_hidden_state_layer_ids", "use_aux_hidden_state", "speculators_model_type",
        "ptd_token_id", "target_hidden_size", "output_multiplier", "final_logit_softcapping",
    )),
    *(("dflash_config", key) for key in (
        "block_size", "causal", "use_swa", "swa_window_size", "projector_type", "markov_rank",
    )),
    *(("eagle_config", key) for key in (
        "eagle_aux_hidden_state_layer_ids", "use_aux_hidden_state",
    )),
    *(("rope_scaling", key) for key in ("rope_type", "type", "factor", "rope_theta")),
    *(("transformer_layer_config", key) for key in ("rope_parameters", "layer_types")),
)  # fmt: skip


def places(table: Any, at: Path = ()) -> Iterator[Path]:
    """Where a value stands, however deep."""
    inner = table.items() if isinstance(table, dict) else enumerate(table)
    for key, value in inner:
        yield (*at, key)
        if isinstance(value, (dict, list)):
            yield from places(value, (*at, key))


def changed(config: dict[str, Any], place: Path, value: Any) -> dict[str, Any]:
    made = copy.deepcopy(config)
    table: Any = made
    for key in place[:-1]:
        if isinstance(table, dict) and not isinstance(table.get(key), (dict, list)):
            table[key] = {}
        table = table[key]
    table[place[-1]] = value
    return made


def refusal(load: Callable[..., Any], layout: str, config: dict[str, Any], what: str) -> str:
    """How a loader refuses a config; empty if it takes it. Anything else that it raises is told
    with `what` was done to the config."""
    try:
        load(layout, config)
    except WhiFlashError as error:
        return str(error)
    except Exception as error:
        raise AssertionError(what) from error
    return ""


def test_odd_values_never_crash_a_loader(
    layout: str, config_of: Callable[[str], dict[str, Any]], load: Callable[..., Any]
) -> None:
    config, refused = config_of(layout), 0
    for place in [*places(config), *MORE]:
        for value in ODD:
            what = f"{place} = {value!r}"
            told = refusal(load, layout, changed(config, place, value), what)
            refused += bool(told)
            assert "\n" not in told, what
    assert refused > 100


def test_missing_keys_never_crash_a_loader(
    layout: str, config_of: Callable[[str], dict[str, Any]], load: Callable[..., Any]
) -> None:
    for place in list(places(config_of(layout))):
        config = config_of(layout)
        table: Any = config
        for key in place[:-1]:
            table = table[key]
        del table[place[-1]]
        assert "\n" not in refusal(load, layout, config, f"{place} is missing"), place
