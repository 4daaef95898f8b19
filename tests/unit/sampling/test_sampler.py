"""The sampler: one formula for all parameters, a pure function of row, prefix and key."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from whiflash.core.errors import InvalidRequestError, NumericsError
from whiflash.core.params import SamplingParams
from whiflash.sampling.choose import block_maxima
from whiflash.sampling.filters import Filters
from whiflash.sampling.noise import derive_key, gumbel_row
from whiflash.sampling.processors import Processors
from whiflash.sampling.sampler import SequenceSampler, greedy_tokens, token_logprob

V = 150
EOS = (2,)
KEY = derive_key(1, 0, [4, 5])


def _sampler(params: SamplingParams, vocab_size: int = V) -> SequenceSampler:
    return SequenceSampler(params, KEY, [4, 5], vocab_size, EOS)


def _formula(row: torch.Tensor, params: SamplingParams, generated: list[int]) -> int:
    """argmax over kept ids of z + T * g, written out."""
    z = row.double().numpy().copy()
    Processors(params, [4, 5], len(z), EOS).apply(z, generated, None)
    if params.temperature > 0:
        kept = Filters.of(params).kept(z, block_maxima(z))
        mask = np.full(len(z), -np.inf)
        mask[kept] = 0.0
        z += mask + params.temperature * gumbel_row(KEY, len(generated), len(z))
    return int(np.argmax(z))


_PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.5, 1.0, 3.0]),
    top_k=st.sampled_from([0, 3, 40]),
    top_p=st.sampled_from([1.0, 0.9, 0.2]),
    min_p=st.sampled_from([0.0, 0.05]),
    logit_bias=st.sampled_from([{}, {7: 3.0, 9: -100.0}]),
    presence_penalty=st.sampled_from([0.0, 1.0]),
    repetition_penalty=st.sampled_from([1.0, 1.2]),
    min_tokens=st.sampled_from([0, 3]),
)


@settings(max_examples=200, deadline=None)
@given(_PARAMS, st.integers(0, 2**32), st.sampled_from([torch.float32, torch.bfloat16]))
def test_sample_is_the_formula(params: SamplingParams, seed: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(seed)
    sampler = _sampler(params)
    generated: list[int] = []
    for _ in range(5):
        row = (torch.randn(V, generator=generator) * 2).to(dtype)
        token = sampler.sample(row, generated)
        assert token == _formula(row, params, generated)
        generated.append(token)
    sampler.check_integrity()


def test_prefix_may_be_left_and_entered_again() -> None:
    """A fresh sampler and one that has seen drafts come and go agree (vllm #18902)."""
    params = SamplingParams(temperature=1, frequency_penalty=1.5, repetition_penalty=1.3)
    used = _sampler(params)
    row = torch.zeros(V, dtype=torch.float64)
    for prefix in ([1, 2, 3], [1, 2, 9], [1], [], [1, 2, 3, 3, 3]):
        assert used.sample(row, prefix) == _sampler(params).sample(row, prefix)


def test_input_row_is_left_alone() -> None:
    for dtype in (torch.float64, torch.float32):
        row = torch.randn(V, generator=torch.Generator().manual_seed(0)).to(dtype)
        before = row.clone()
        params = SamplingParams(temperature=1, top_p=0.1, logit_bias={1: -100.0})
        for index in range(20):
            _sampler(params).sample(row, [1] * index)
        assert torch.equal(row, before)


def test_grammar_mask_is_kept_greedy_and_sampled() -> None:
    allowed = np.zeros(V, bool)
    allowed[[11, 70]] = True
    row = torch.randn(V, generator=torch.Generator().manual_seed(0))
    for params in (SamplingParams(), SamplingParams(temperature=50.0, top_p=0.5)):
        sampler = _sampler(params)
        assert all(sampler.sample(row, [0] * i, allowed) in (11, 70) for i in range(50))
    with pytest.raises(InvalidRequestError, match="no token id is left"):
        _sampler(SamplingParams()).sample(row, [], np.zeros(V, bool))


@pytest.mark.parametrize("temperature", [0.0, 1.0, 100.0])
def test_banned_ids_never_appear(temperature: float) -> None:
    """vllm #42744: -100 is a ban at every temperature, here on the best id by far."""
    row = torch.zeros(V)
    row[77] = 1000.0
    sampler = _sampler(SamplingParams(temperature=temperature, logit_bias={77: -100.0}))
    assert all(sampler.sample(row, [0] * index) != 77 for index in range(300))


def test_min_tokens_masks_ends_until_it_is_reached() -> None:
    row = torch.zeros(V)
    row[2], row[9] = 50.0, 40.0
    sampler = _sampler(SamplingParams(min_tokens=3, stop_token_ids=(9,)))
    assert [sampler.sample(row, [1] * i) for i in range(5)] == [0, 0, 0, 2, 2]


def test_plain_greedy_is_batched_argmax_with_the_lowest_id() -> None:
    logits = torch.randn(40, V, generator=torch.Generator().manual_seed(0)).round()
    sampler = _sampler(SamplingParams(top_k=5))
    assert sampler.is_plain_greedy
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        rows = logits.to(dtype)
        expected = [int(np.flatnonzero(row == row.max())[0]) for row in rows.double().numpy()]
        assert greedy_tokens(rows) == expected
        assert [sampler.sample(row, []) for row in rows] == expected
    assert not _sampler(SamplingParams(min_tokens=1)).is_plain_greedy
    assert not _sampler(SamplingParams(temperature=0.1)).is_plain_greedy


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize(
    "options",
    [{}, {"temperature": 1.0}, {"temperature": 1.0, "top_p": 0.9}, {"presence_penalty": 1.0}],
)
def test_unsound_logits_raise(value: float, options: dict[str, Any]) -> None:
    row = torch.zeros(V)
    row[149] = value
    with pytest.raises(NumericsError):
        _sampler(SamplingParams(**options)).sample(row, [])
    with pytest.raises(NumericsError):
        greedy_tokens(row[None])
    with pytest.raises(NumericsError):
        token_logprob(row, 0, 3)


def test_wrong_width_is_refused() -> None:
    with pytest.raises(ValueError, match="150"):
        _sampler(SamplingParams()).sample(torch.zeros(V + 1), [])


def test_seeded_rows_do_not_depend_on_their_neighbours() -> None:
    """vllm #6038, #9441: a mixed seeded and unseeded batch; rows in any order, once or twice."""
    rows = torch.randn(6, V, generator=torch.Generator().manual_seed(0))
    params = SamplingParams(temperature=1.0)
    samplers = [SequenceSampler(params, derive_key(seed, 0, [1]), [1], V, EOS) for seed in range(6)]
    alone = [s.sample(row, []) for s, row in zip(samplers, rows, strict=True)]
    for order in ([5, 4, 3, 2, 1, 0], [0, 0, 3, 3, 1, 5, 2, 4]):
        assert {i: samplers[i].sample(rows[i], []) for i in order} == dict(enumerate(alone))


@pytest.mark.parametrize("num_top", [0, 1, 5, 20])
def test_logprobs_are_the_raw_models(num_top: int) -> None:
    """llama.cpp #27972: not zero, and equal to a plain log-softmax; ties by lowest id."""
    row = torch.randn(V, generator=torch.Generator().manual_seed(0), dtype=torch.float64).round()
    expected = torch.log_softmax(row, -1)
    record = token_logprob(row, 17, num_top)
    assert record.logprob == pytest.approx(float(expected[17]), abs=1e-12)
    order = np.lexsort((np.arange(V), -row.numpy()))[:num_top]
    assert [token for token, _ in record.top] == order.tolist()
    for token, value in record.top:
        assert value == pytest.approx(float(expected[token]), abs=1e-12)
