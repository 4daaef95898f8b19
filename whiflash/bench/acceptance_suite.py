"""Suite `acceptance`: how many drafted tokens three ways of drafting get accepted, from the same
pairs of distributions: classical speculative sampling, noise shared with the target (ours), and
argmax drafts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from statistics import fmean
from typing import Any, Final

import numpy as np

from whiflash.bench.acceptance_laws import classical, point_mass, shared_noise, softmax
from whiflash.bench.checkpoints import neural_folders, require_folder
from whiflash.bench.progress import say
from whiflash.bench.prompts import KINDS, all_prompts
from whiflash.bench.seen_drafts import Logits, SeenDFlash, SeenEagle3, seen_twin
from whiflash.bench.suite import Column, Highlight, SuiteOptions, SuiteResult, Table
from whiflash.chat.format import ChatFormat
from whiflash.config import EngineConfig
from whiflash.core.params import GenerationRequest, SamplingParams
from whiflash.core.protocols import ForwardSegment
from whiflash.drafters.neural import NeuralDrafter
from whiflash.engine.build import EngineParts, build_parts
from whiflash.engine.core import EngineCore
from whiflash.engine.ticket import Ticket
from whiflash.routing.costs import CostModel
from whiflash.routing.policies.survey import SurveyPolicy
from whiflash.routing.router import Router

TEMPERATURES: Final = (0.5, 0.8, 1.0)
Ids = tuple[int, ...]
Drafters = Mapping[str, SeenEagle3 | SeenDFlash]

COLUMNS: Final = (
    Column("drafter", "drafted token"),
    Column("temperature", "T", ".1f"),
    Column("positions", "positions", ","),
    Column("classical", "classical", ".1%"),
    Column("shared", "shared noise (ours)", ".1%"),
    Column("argmax", "argmax draft", ".1%"),
    Column("kept", "ours : classical", ".3f"),
    Column("drawn", "ours, as drawn", ".1%"),
)


def run(options: SuiteOptions) -> SuiteResult:
    """About five minutes on two cores; `is_quick` about one."""
    folders = neural_folders(options.model, options.drafters)
    if not folders:
        require_folder(folders, "eagle3", options.model)
    named = tuple(f"{kind}:{place}" for kind, place in sorted(folders.items()))
    config = EngineConfig.of(model=options.model, drafters=named, plain_share=0.0)
    with closing(build_parts(config)) as parts:
        prompts = _prompts(parts, 1 if options.is_quick else 3)
        num_tokens = 12 if options.is_quick else 64
        rows = list(_rows(parts, prompts, num_tokens))
        target = parts.target.info
        setting = {
            "model": f"{options.model}, {target.dtype}",
            "drafters": ", ".join(sorted(folders)) + _left_out(folders),
            "text": f"{len(prompts)} prompts of all kinds, {num_tokens} tokens each, sampled by "
            "the target at T, no filters; every position is a root",
        }
    return SuiteResult(
        title="accepted drafts at temperature",
        setting=setting,
        tables=(Table("acceptance", "One drafted token", _NOTE, COLUMNS, tuple(rows)),),
        highlights=tuple(_highlights(rows)),
    )


def _left_out(folders: Mapping[str, str]) -> str:
    missing = [kind for kind in ("dflash", "eagle3") if kind not in folders]
    return f"; left out, none shipped or given: {', '.join(missing)}" if missing else ""


def _prompts(parts: EngineParts, per_kind: int) -> list[Ids]:
    chat = ChatFormat.for_model(parts.folder, parts.config.model)
    found = []
    for kind in KINDS:
        for prompt in [p for p in all_prompts() if p.kind == kind][:per_kind]:
            text = chat.render(prompt.messages, prompt.tools or None) + prompt.start
            found.append(tuple(parts.tokenizer.encode(text)))
    return found


def _rows(parts: EngineParts, prompts: Sequence[Ids], num_tokens: int) -> Iterator[dict[str, Any]]:
    drafters = {
        arm: seen_twin(drafter)
        for arm, drafter in parts.drafters.items()
        if isinstance(drafter, NeuralDrafter)
    }
    costs = CostModel(parts.target.verify_curve)
    router = Router(SurveyPolicy(costs), costs, plain_share=0.0, may_rest=False)
    core = EngineCore(
        parts.target, parts.tokenizer, drafters, router, parts.publisher, parts.limits
    )
    for temperature in TEMPERATURES:
        say(f"temperature {temperature}")
        found: dict[str, list[tuple[float, ...]]] = {}
        for number, prompt in enumerate(prompts):
            answer = _answer(core, prompt, num_tokens, temperature, number)
            _weigh(parts, drafters, prompt, answer, temperature, found)
        yield from (_row(name, temperature, values) for name, values in sorted(found.items()))
    core.close()


def _answer(core: EngineCore, prompt: Ids, num_tokens: int, temperature: float, seed: int) -> Ids:
    params = SamplingParams(
        max_tokens=num_tokens, temperature=temperature, seed=seed, ignore_eos=True
    )
    ticket = Ticket(GenerationRequest(prompt, params, store=False), seed)
    core.submit(ticket)
    while core.has_work:
        core.step()
    return ticket.result().choices[0].token_ids


def _weigh(
    parts: EngineParts,
    drafters: Drafters,
    prompt: Ids,
    answer: Ids,
    temperature: float,
    found: dict[str, list[tuple[float, ...]]],
) -> None:
    """Adds each slot's three acceptances, and whether the real draft came true (NaN behind the
    first slot), by the row that it belongs to."""
    ids, target = (*prompt, *answer), _target_logits(parts, prompt, answer)
    for arm, drafter in drafters.items():
        for root, slots in drafter.seen.logits.items():
            for slot, logits in enumerate(slots):
                place = root + slot - len(prompt) + 1
                if place >= len(answer):
                    break
                p = softmax(target[place], temperature)
                q = softmax(drafter.seen.whole(logits), temperature)
                drawn = float("nan") if slot else float(drafter.seen.first[root] == ids[root + 1])
                values = (classical(p, q), shared_noise(p, q), point_mass(p, q), drawn)
                name = f"{arm}, first" if slot == 0 else f"{arm}, later slots of the block"
                found.setdefault(name, []).append(values)
        drafter.seen.clear()


def _target_logits(parts: EngineParts, prompt: Ids, answer: Ids) -> Logits:
    """[answer, V]: what each token of the answer was sampled from."""
    ids = np.array((*prompt, *answer), np.int64)
    cache = parts.target.new_cache(len(ids))
    try:
        parts.target.forward([ForwardSegment(cache, ids[: len(prompt) - 1], None, 0)])
        cache.commit(range(len(prompt) - 1))
        rest = ids[len(prompt) - 1 : -1]
        output = parts.target.forward([ForwardSegment(cache, rest, None, len(rest))])
        logits: Logits = output.logits.detach().float().cpu().numpy()
    finally:
        cache.release()
    return logits


def _row(name: str, temperature: float, values: Sequence[tuple[float, ...]]) -> dict[str, Any]:
    plain, shared, argmax = (fmean(value[place] for value in values) for place in range(3))
    drawn = [value[3] for value in values if value[3] == value[3]]
    return {
        "drafter": name,
        "temperature": temperature,
        "positions": len(values),
        "classical": plain,
        "shared": shared,
        "argmax": argmax,
        "kept": shared / plain if plain else None,
        "drawn": fmean(drawn) if drawn else None,
    }


_NOTE: Final = (
    "Mean over positions of the exact probability that the token is accepted, from the target's p "
    "and the drafter's q at the same prefix, both at T: classical sum min(p, q), the most that any "
    "rule can reach; shared noise sum_i 1 / sum_j max(p_j / p_i, q_j / q_i); argmax p(argmax q). "
    "`as drawn`: the share of the engine's real first drafts that the text came to. EAGLE-3's "
    "later tokens depend on its own draft and are not compared; DFlash's block is one guess of "
    "all slots."
)


def _highlights(rows: Sequence[dict[str, Any]]) -> Iterator[Highlight]:
    for row in rows:
        if row["temperature"] == 0.8 and row["drafter"].endswith("first"):
            yield Highlight(
                what=f"first drafted token at T 0.8, {row['drafter'].partition(',')[0]}",
                figure=f"{row['shared']:.1%} accepted, the text independent of the draft",
                twin=f"{row['classical']:.1%} by classical sampling, {row['argmax']:.1%} by argmax "
                "drafts",
                setting="exact, same positions",
            )
