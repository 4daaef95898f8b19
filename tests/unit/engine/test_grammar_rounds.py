"""Answers held to a grammar, in the round loop: vllm #44006, #53777, #34650, #36138, #30916."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from whiflash.chat.constraints.compiler import GrammarCompiler
from whiflash.core.constraint import ConstraintSpec, JsonAnswer, Reasoning, ToolCalls, ToolSchema
from whiflash.core.draft import DraftTree
from whiflash.core.errors import InvalidRequestError
from whiflash.core.masks import TokenMasks
from whiflash.core.params import GenerationRequest, SamplingParams
from whiflash.core.results import Completion, FinishReason
from whiflash.engine.core import EngineCore
from whiflash.engine.grammar import SequenceGrammar
from whiflash.engine.ticket import Ticket
from whiflash.target.load import LoadedTarget
from whiflash.testing.constrained import check_text, toy_compiler
from whiflash.testing.drafters import OracleDrafter, RandomDrafter
from whiflash.testing.engines import drain
from whiflash.testing.marker_target import MarkerTarget
from whiflash.testing.plain import plain_answer
from whiflash.testing.tally import Tally
from whiflash.testing.toy import EOS_ID
from whiflash.testing.toy_drafters import ToyDrafters
from whiflash.testing.worlds import run_scenario

MakeCore = Callable[..., EngineCore]

PROMPT = tuple(range(5, 37))
NUM_ROUNDS = 2000
PICK = JsonAnswer('{"type": "object", "properties": {"on": {"type": "boolean"}, "size": '
                  '{"enum": ["s", "m"]}}, "required": ["on", "size"]}')  # fmt: skip
TOOL = ToolSchema("put", '{"type": "object", "properties": {"x": {"enum": [1, 2]}}}')
FREE = ToolCalls((TOOL,))


@pytest.fixture(scope="module")
def compiler(toy: LoadedTarget) -> GrammarCompiler:
    return toy_compiler(toy.tokenizer, toy.target.info)


def request(spec: ConstraintSpec | None, **fields: object) -> GenerationRequest:
    defaults = {"max_tokens": 80, "temperature": 1.0}
    params = {key: fields.pop(key) for key in list(fields) if hasattr(SamplingParams, key)}
    return GenerationRequest(
        PROMPT, SamplingParams(**{**defaults, **params}), constraint=spec, **fields  # type: ignore[arg-type]
    )  # fmt: skip


def ask(
    core: EngineCore, compiler: GrammarCompiler, *requests: GenerationRequest, seed: int = 7
) -> list[Completion]:
    tickets = [
        Ticket(
            asked, seed, grammar=compiler.compile(asked.constraint) if asked.constraint else None
        )
        for asked in requests
    ]
    for ticket in tickets:
        core.submit(ticket)
    drain(core)
    return [ticket.result().choices[0] for ticket in tickets]


def oracle(truth: Sequence[int], vocab_size: int, **options: int) -> OracleDrafter:
    """Goes on with what comes after the last PROMPT."""
    return OracleDrafter(
        lambda context, count: tuple(truth[len(context) - len(PROMPT) :][:count]),
        vocab_size, **options,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_random_drafts_and_schemas_are_valid_and_equal_the_plain_loop(
    toy: LoadedTarget, tmp_path: Path
) -> None:
    """Every answer is held to a random form; each step compares each matcher with a fresh replay
    of the ids emitted (check_integrity), each text with the plain loop's."""
    tally, toys = Tally(), ToyDrafters(tmp_path, toy.target)
    seed = 500
    while tally.covered["constrained_rounds"] < NUM_ROUNDS and seed < 600:
        run_scenario(seed, toy.target, toy.tokenizer, tally, toys, constrained_share=1.0)
        seed += 1
    print("\n".join(tally.lines()))
    for name in ("masked_nodes", "valid_in_grammar", "cut_in_grammar", "resumed_in_grammar"):
        assert tally.covered[name] > 0, name
    assert tally.covered["constrained_rounds"] >= NUM_ROUNDS


def test_constrained_rows_among_others_in_one_forward(
    toy: LoadedTarget, make_core: MakeCore, compiler: GrammarCompiler
) -> None:
    asked = [request(PICK), request(None, max_tokens=30), request(FREE, max_tokens=30),
             request(PICK, temperature=0.0), request(PICK, drafter="none")]  # fmt: skip
    core = make_core({"random": RandomDrafter(toy.target.info.vocab_size, seed=3)})
    for wanted, got in zip(asked, ask(core, compiler, *asked), strict=True):
        grammar = None if wanted.constraint is None else compiler.compile(wanted.constraint)
        plain = plain_answer(toy.target, toy.tokenizer, wanted, 0, 7, grammar)
        assert (got.token_ids, got.text) == (plain.token_ids, plain.text)
        if wanted.constraint is not None and got.finish_reason is FinishReason.STOP:
            check_text(wanted.constraint, got.text)
    assert core.counters.mask_ms > 0
    assert core.counters.constrained_rounds > 0


def test_drafted_nodes_that_break_the_grammar_are_dropped_before_they_are_verified(
    toy: LoadedTarget, make_core: MakeCore, compiler: GrammarCompiler
) -> None:
    plain = plain_answer(toy.target, toy.tokenizer, request(PICK), 0, 7, compiler.compile(PICK))
    drafter = oracle(plain.token_ids, toy.target.info.vocab_size, max_tokens=8, num_decoys=1)
    core = make_core({"oracle": drafter}, max_draft_nodes=16)
    (got,) = ask(core, compiler, request(PICK))
    assert got.token_ids == plain.token_ids
    arm = got.usage.arms["oracle"]
    assert core.drafting.num_masked_nodes >= arm.accepted / 4
    assert arm.accepted_length > 4


@pytest.mark.parametrize("is_greedy", [False, True])
def test_the_call_marker_may_fall_anywhere_in_an_accepted_run(
    toy: LoadedTarget, make_core: MakeCore, compiler: GrammarCompiler, is_greedy: bool
) -> None:
    """vllm #34650, PR #44993, #36138: a state change inside a run was missed. The marker begins at
    each position of a run of eight, and ends in it or in the next one."""
    eager = MarkerTarget(toy.target, toy.tokenizer, "so <tool_call>", len(PROMPT))
    asked = request(FREE, max_tokens=400, temperature=0.0 if is_greedy else 1.0)
    grammar = compiler.compile(FREE)
    plain = plain_answer(eager, toy.tokenizer, asked, 0, 7, grammar)
    text = toy.tokenizer.decode(plain.token_ids)
    at = text.index("<tool_call>")
    assert "</tool_call>" in text[at:], text
    for cut in range(1, at + 12):
        core = make_core({"oracle": oracle(plain.token_ids, eager.info.vocab_size)})
        core.target = eager
        resumed = dataclasses.replace(asked, forced_ids=plain.token_ids[:cut])
        (got,) = ask(core, compiler, resumed)
        assert got.token_ids == plain.token_ids
        assert got.usage.arms["oracle"].accepted > 20


@pytest.mark.parametrize("reasoning", [Reasoning.OPEN, Reasoning.OPTIONAL])
def test_reasoning_may_end_anywhere_in_an_accepted_run(
    toy: LoadedTarget, make_core: MakeCore, compiler: GrammarCompiler, reasoning: Reasoning
) -> None:
    """vllm #34650, #31858: the end of the reasoning was missed inside an accepted run."""
    spec = dataclasses.replace(PICK, reasoning=reasoning)
    text = "so </think>" if reasoning is Reasoning.OPEN else "<think>so </think>"
    eager = MarkerTarget(toy.target, toy.tokenizer, text, len(PROMPT))
    asked = request(spec, max_tokens=200, temperature=0.0)
    plain = plain_answer(eager, toy.tokenizer, asked, 0, 7, compiler.compile(spec))
    text = toy.tokenizer.decode(plain.token_ids)
    at = text.index("</think>")
    assert plain.finish_reason is FinishReason.STOP
    check_text(spec, text)
    for cut in range(max(1, at - 8), at + 10):
        core = make_core({"oracle": oracle(plain.token_ids, eager.info.vocab_size)})
        core.target = eager
        (got,) = ask(core, compiler, dataclasses.replace(asked, forced_ids=plain.token_ids[:cut]))
        assert got.token_ids == plain.token_ids


def test_the_end_inside_an_accepted_run_is_eos_and_nothing_else(
    toy: LoadedTarget, make_core: MakeCore, compiler: GrammarCompiler
) -> None:
    plain = plain_answer(toy.target, toy.tokenizer, request(PICK), 0, 7, compiler.compile(PICK))
    assert plain.token_ids[-1] == EOS_ID
    beyond = (*plain.token_ids, EOS_ID, 9, 9, 9)
    for ahead in range(1, 9):
        drafter = oracle(beyond, toy.target.info.vocab_size, max_tokens=ahead)
        (got,) = ask(make_core({"oracle": drafter}), compiler, request(PICK))
        assert got.token_ids == plain.token_ids
        assert got.finish_reason is FinishReason.STOP


@pytest.mark.parametrize("max_tokens", [1, 2, 5, 9])
def test_max_tokens_cuts_with_reason_length(
    make_core: MakeCore, compiler: GrammarCompiler, max_tokens: int
) -> None:
    (got,) = ask(make_core(), compiler, request(PICK, max_tokens=max_tokens))
    assert got.finish_reason is FinishReason.LENGTH
    assert len(got.token_ids) == max_tokens


@pytest.mark.parametrize(
    "fields", [{"min_tokens": 80}, {"logit_bias": {EOS_ID: -100.0}}], ids=["min_tokens", "bias"]
)
def test_where_nothing_is_left_the_answer_ends_with_an_error_drafted_or_not(
    toy: LoadedTarget, make_core: MakeCore, compiler: GrammarCompiler, fields: dict[str, object]
) -> None:
    """The grammar is at its end, where only EOS is allowed, and EOS is masked. What came before is
    the same whatever was drafted."""
    asked = request(PICK, **fields)
    (alone,) = ask(make_core(), compiler, asked)
    assert alone.finish_reason is FinishReason.ERROR
    assert "no token id is left" in (alone.error or "")
    check_text(PICK, alone.text)
    drafter = oracle((*alone.token_ids, EOS_ID, 5, 5), toy.target.info.vocab_size)
    (drafted,) = ask(make_core({"oracle": drafter}), compiler, asked)
    assert (drafted.token_ids, drafted.text) == (alone.token_ids, alone.text)
    assert drafted.error == alone.error


def test_an_error_behind_the_end_of_the_turn_is_none(
    toy: LoadedTarget, make_core: MakeCore, compiler: GrammarCompiler
) -> None:
    """A row that the turn does not reach is sampled in vain: it may not fail the turn."""
    whole = plain_answer(toy.target, toy.tokenizer, request(PICK), 0, 7, compiler.compile(PICK))
    length = len(whole.token_ids) - 1
    asked = request(PICK, max_tokens=length, logit_bias={EOS_ID: -100.0})
    drafter = oracle((*whole.token_ids[:length], 9), toy.target.info.vocab_size)
    (got,) = ask(make_core({"oracle": drafter}), compiler, asked)
    assert got.finish_reason is FinishReason.LENGTH
    assert got.token_ids == whole.token_ids[:length]


def test_resuming_follows_the_grammar_over_what_was_delivered(
    toy: LoadedTarget, make_core: MakeCore, compiler: GrammarCompiler
) -> None:
    (whole,) = ask(make_core(), compiler, request(PICK))
    for cut in range(1, len(whole.token_ids)):
        resumed = request(PICK, forced_ids=whole.token_ids[:cut])
        (got,) = ask(make_core(), compiler, resumed)
        assert got.token_ids == whole.token_ids


@pytest.mark.parametrize("text", ["hello", '{"on": true, "size": "x', '{"size"'])
def test_forced_ids_that_break_the_grammar_are_refused(
    toy: LoadedTarget, make_core: MakeCore, compiler: GrammarCompiler, text: str
) -> None:
    core = make_core()
    forced = tuple(toy.tokenizer.encode(text))
    with pytest.raises(InvalidRequestError, match="forced_ids") as caught:
        ask(core, compiler, request(PICK, forced_ids=forced))
    assert caught.value.param == "forced_ids"
    assert not core.has_work


def test_an_answer_that_has_ended_cannot_be_resumed(
    make_core: MakeCore, compiler: GrammarCompiler
) -> None:
    (whole,) = ask(make_core(), compiler, request(PICK))
    with pytest.raises(InvalidRequestError, match="forced_ids"):
        ask(make_core(), compiler, request(PICK, forced_ids=whole.token_ids))


def test_what_contradicts_a_constraint_is_refused(
    make_core: MakeCore, compiler: GrammarCompiler
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        ask(make_core(), compiler, request(PICK, ignore_eos=True))
    assert caught.value.param == "ignore_eos"
    with pytest.raises(InvalidRequestError, match="without a constraint compiler") as caught:
        make_core().submit(Ticket(request(PICK), 0))
    assert caught.value.param == "constraint"


def test_choices_each_have_a_matcher_of_their_own(
    make_core: MakeCore, compiler: GrammarCompiler
) -> None:
    core = make_core()
    asked = request(PICK, n=3, temperature=2.0)
    ticket = Ticket(asked, 3, grammar=compiler.compile(PICK))
    core.submit(ticket)
    drain(core)
    texts = [choice.text for choice in ticket.result().choices]
    for text in texts:
        check_text(PICK, text)
    assert len(set(texts)) > 1


class Failing:
    """A grammar whose library breaks after `sound` calls."""

    def __init__(self, sound: int) -> None:
        self.sound = sound
        self.is_ended = False

    def start(self) -> Failing:
        return self

    def _count(self) -> None:
        self.sound -= 1
        if self.sound < 0:
            raise RuntimeError("the library broke")

    def advance(self, token_id: int) -> bool:
        self._count()
        return True

    def rollback(self, num_tokens: int) -> None:
        self._count()

    def masks(self, tree: DraftTree) -> TokenMasks:
        self._count()
        return TokenMasks(np.full((len(tree) + 1, 2), -1, np.int32), 64)


@pytest.mark.parametrize("sound", range(0, 40, 3))
def test_a_grammar_that_fails_ends_its_own_request_only(
    toy: LoadedTarget, make_core: MakeCore, sound: int
) -> None:
    core = make_core({"random": RandomDrafter(toy.target.info.vocab_size)})
    core.submit(sick := Ticket(request(PICK), 7, grammar=Failing(sound)))
    core.submit(well := Ticket(request(None, max_tokens=20), 7))
    for _ in range(200):  # no integrity checks here: they would count as calls
        if not core.step():
            break
    assert sick.result().choices[0].finish_reason is FinishReason.ERROR
    assert "the library broke" in (sick.result().choices[0].error or "")
    plain = plain_answer(toy.target, toy.tokenizer, request(None, max_tokens=20), 0, 7)
    assert well.result().choices[0].token_ids == plain.token_ids


def test_pruning_leaves_no_trace(toy: LoadedTarget, compiler: GrammarCompiler) -> None:
    grammar = SequenceGrammar(compiler.compile(PICK))
    (a, b, quote, x) = toy.tokenizer.encode('{a"x')
    tree = DraftTree.from_parents([a, quote, x, b, EOS_ID, a], [0, 1, 2, 0, 1, 5])
    kept = grammar.prune(tree)
    assert kept.tokens.tolist() == [a, quote]
    grammar.check_integrity([])
    masks = grammar.masks(tree)
    assert [masks.row(row).any() for row in range(7)] == [True, True, True, False, *[False] * 3]
    assert all(
        masks.allows(row, token) == masks.row(row)[token] for row in range(7) for token in range(64)
    )


def test_nodes_that_end_the_text_are_not_verified(
    toy: LoadedTarget, compiler: GrammarCompiler
) -> None:
    """The target emits that id from the row above, and what follows would be discarded."""
    grammar = SequenceGrammar(compiler.compile(PICK))
    grammar.advance(toy.tokenizer.encode('{"on": true, "size": "s"}'))
    assert grammar.masks(DraftTree.empty()).allows(0, EOS_ID)
    assert len(grammar.prune(DraftTree.chain([EOS_ID, EOS_ID, 5]))) == 0
