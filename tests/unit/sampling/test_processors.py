"""Bias, penalties, min_tokens and masks against a naive reference, on growing prefixes."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whiflash.core.errors import InvalidRequestError, NumericsError
from whiflash.core.params import SamplingParams
from whiflash.sampling.processors import Processors, ending_ids

V = 23
EOS = (2, 3)


def naive(
    z: np.ndarray,
    params: SamplingParams,
    prompt: list[int],
    generated: list[int],
    allowed: np.ndarray | None,
) -> list[float]:
    out = []
    for token in range(V):
        value = float(z[token]) + params.logit_bias.get(token, 0.0)
        if token in prompt or token in generated:
            penalty = params.repetition_penalty
            value = value / penalty if value > 0 else value * penalty
        count = generated.count(token)
        value -= params.frequency_penalty * count + params.presence_penalty * (count > 0)
        is_end = token in params.stop_token_ids or (token in EOS and not params.ignore_eos)
        is_masked = (
            params.logit_bias.get(token, 0.0) == -100
            or (is_end and len(generated) < params.min_tokens)
            or (allowed is not None and not allowed[token])
        )
        out.append(-math.inf if is_masked else value)
    return out


_IDS = st.integers(0, V - 1)
_PARAMS = st.builds(
    SamplingParams,
    logit_bias=st.dictionaries(_IDS, st.sampled_from([-100.0, -5.0, 0.5, 100.0]), max_size=4),
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.7]),
    presence_penalty=st.sampled_from([0.0, 0.5, -2.0]),
    frequency_penalty=st.sampled_from([0.0, 2.0, -0.25]),
    min_tokens=st.integers(0, 5),
    stop_token_ids=st.lists(_IDS, max_size=2).map(tuple),
    ignore_eos=st.booleans(),
)


@settings(max_examples=150, deadline=None)
@given(
    _PARAMS,
    st.lists(_IDS, min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 3), st.lists(_IDS, max_size=4)), max_size=6),
    st.integers(0, 2**32),
)
def test_equals_the_naive_reference_on_hypothetical_prefixes(
    params: SamplingParams, prompt: list[int], rounds: list[tuple[int, list[int]]], seed: int
) -> None:
    """Regression for vllm #18902 and #42744: every row is processed with its own history, also
    where a draft's path is left again (`keep` ids of it stay)."""
    rng = np.random.default_rng(seed)
    processors = Processors(params, prompt, V, EOS)
    committed: list[int] = []
    for keep, path in rounds:
        for length in range(len(path) + 1):
            generated = [*committed, *path[:length]]
            z = rng.normal(size=V)
            allowed = rng.random(V) < 0.7 if rng.random() < 0.3 else None
            expected = naive(z, params, prompt, generated, allowed)
            row = z.copy()
            if allowed is not None or not processors.is_off:
                processors.apply(row, generated, allowed)
            np.testing.assert_allclose(row, expected, rtol=1e-14)
            processors.check_integrity()
        committed += path[:keep]


def test_off_means_that_nothing_is_changed() -> None:
    assert Processors(SamplingParams(temperature=1, top_k=3), [1], V, EOS).is_off
    for changed in (
        {"logit_bias": {1: 1.0}},
        {"logit_bias": {1: -100.0}},
        {"repetition_penalty": 1.1},
        {"presence_penalty": 0.1},
        {"frequency_penalty": -0.1},
        {"min_tokens": 1},
    ):
        assert not Processors(SamplingParams(**changed), [1], V, EOS).is_off


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_unsound_logits_end_the_request_even_where_masked(value: float) -> None:
    processors = Processors(SamplingParams(logit_bias={4: -100.0}), [1], V, EOS)
    z = np.zeros(V)
    z[4] = value
    with pytest.raises(NumericsError):
        processors.apply(z, [], None)


@pytest.mark.parametrize(
    ("params", "field"),
    [
        (SamplingParams(logit_bias={V: 1.0}), "logit_bias"),
        (SamplingParams(stop_token_ids=(V + 1,)), "stop_token_ids"),
        (SamplingParams(stop_token_ids=(-1,)), "stop_token_ids"),
    ],
)
def test_ids_beyond_the_model_are_refused_by_name(params: SamplingParams, field: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        Processors(params, [1], V, EOS)
    assert caught.value.param == field


def test_ending_ids() -> None:
    assert ending_ids(SamplingParams(stop_token_ids=(7,)), EOS) == {7, 2, 3}
    assert ending_ids(SamplingParams(stop_token_ids=(7,), ignore_eos=True), EOS) == {7}


@pytest.mark.parametrize("second", [[1, 2, 9], [9, 2, 3], [1, 2], [], [1, 2, 3, 3]])
def test_another_prefix_is_counted_anew(second: list[int]) -> None:
    """The other branch of a tree may be as long as the first."""
    params = SamplingParams(frequency_penalty=1.5, presence_penalty=0.5, repetition_penalty=1.3)
    processors = Processors(params, [4], V, EOS)
    for generated in ([1, 2, 3], second):
        row = np.ones(V)
        processors.apply(row, generated, None)
        np.testing.assert_allclose(row, naive(np.ones(V), params, [4], generated, None))
        processors.check_integrity()
