"""Secrets in tool arguments never reach a log, whatever the tokenizer makes of them."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from whiflash.core.errors import ConfigError
from whiflash.trajectories.deletion import Deletion, DeletionKind
from whiflash.trajectories.log import START
from whiflash.trajectories.memory_log import MemoryLog
from whiflash.trajectories.record import TrajectoryRecord
from whiflash.trajectories.redaction import RedactedLog, Redactor, load_finder, secret_spans

KEY = "sk-proj-abcdEFGH1234ijklMNOP5678"
SECRETS = {
    '{"user": "bob", "password": "hunter2!"}': "hunter2!",
    '{"db_password":"p\\"q r"}': 'p\\"q r',
    '{"arguments": "{\\"api_key\\": \\"zz-91827\\", \\"n\\": 3}"}': "zz-91827",
    "export AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG": "wJalrXUtnFEMI/K7MDENG",
    "mysql --user root --password s3cr3tpw -e 'select 1'": "s3cr3tpw",
    "curl -H 'Authorization: Bearer abcdef1234567890' https://x.org": "abcdef1234567890",
    "curl -u admin:letmein1 https://x.org": "letmein1",
    "psql postgres://app:pa55word@db.local/main": "pa55word",
    f"client = OpenAI({KEY!r})": KEY,
    "key id AKIAIOSFODNN7EXAMPLE is old": "AKIAIOSFODNN7EXAMPLE",
    "git clone https://ghp_16C7e42F292c6912E7710c838347Ae178B4a@github.com/o/r": "ghp_16C7e42F29",
    "token: eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.SflKxwRJSMeKKF2QT4": "eyJhbGciOiJIUzI1.eyJzdWIi",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nabc\n-----END RSA PRIVATE KEY-----\nx": "MIIEow\nabc",
    "pay with 4111 1111 1111 1111 now": "4111 1111 1111 1111",
    "password: correcthorse\nnext line": "correcthorse",
}
HARMLESS = [
    'def add(a, b):\n    """Adds."""\n    return a + b',
    '{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}',
    "The order 4111111111111112 has no check digit; call 0301234567.",
    '{"reservation_id": "ZFA04Y", "payment_id": "credit_card_7815826"}',
    "for key in sorted(table): print(key, table[key])",
    "Basic functionality works. The secret of good code is naming. Passwords: see below.",
    "https://example.org/a/b:c/d@2x.png and user@example.org",
    '{"max_tokens": 256, "tokens": [1, 2, 3]}',
]


@pytest.mark.parametrize("text", SECRETS)
def test_a_secret_is_found_with_all_its_characters(text: str) -> None:
    start = text.index(SECRETS[text])
    end = start + len(SECRETS[text])
    covered = {place for a, b in secret_spans(text) for place in range(a, b)}
    assert covered >= set(range(start, end)), [text[a:b] for a, b in secret_spans(text)]
    assert len(covered) <= max(2 * (end - start), end - start + 64), "the rest should stay"


@pytest.mark.parametrize("text", HARMLESS)
def test_what_agents_repeat_is_left_alone(text: str) -> None:
    assert [text[a:b] for a, b in secret_spans(text)] == []


UNITS = [
    "password",
    "a://",
    "sk-",
    "eyJ-",
    "\\",
    "--token",
    "1 ",
    "curl -u ",
    'secret\\": \\"',
    "-----BEGIN ",
]


@pytest.mark.parametrize("unit", UNITS)
def test_no_text_keeps_the_search_busy(unit: str) -> None:
    """Quadratic patterns took minutes over 40,000 characters of one repeated word."""
    started = time.perf_counter()
    secret_spans(unit * (40_000 // len(unit)))
    assert time.perf_counter() - started < 10


class TrainedTokenizer:
    """A small real tokenizer: byte-level as in GPT-2, or with marked spaces as in SentencePiece."""

    fingerprint = "test"

    def __init__(self, kind: str) -> None:
        self._tokenizer = tokenizers.Tokenizer(models.BPE(byte_fallback=kind == "metaspace"))
        texts = [*SECRETS, *HARMLESS] * 4
        if kind == "byte level":
            self._tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            self._tokenizer.decoder = decoders.ByteLevel()
            alphabet = pre_tokenizers.ByteLevel.alphabet()
        else:
            self._tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
            self._tokenizer.decoder = decoders.Metaspace()
            alphabet = sorted({char for text in texts for char in text})
        trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet)
        self._tokenizer.train_from_iterator(texts, trainer)

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(token_ids)))

    def id_to_token(self, token_id: int) -> str | None:
        return self._tokenizer.id_to_token(token_id)


@pytest.fixture(scope="module", params=["byte level", "metaspace"])
def tokenizer(request: pytest.FixtureRequest) -> TrainedTokenizer:
    return TrainedTokenizer(request.param)


@pytest.mark.parametrize("text", SECRETS)
def test_its_tokens_are_cut_out_and_the_rest_stays_in_stretches(
    tokenizer: TrainedTokenizer, text: str
) -> None:
    before, after = "The agent calls a tool now.\n", "\nand then goes on with the task."
    ids = tokenizer.encode(before + text + after)
    record = TrajectoryRecord("a", "run", np.array(ids), segment=4, subject="s")
    stretches = Redactor(tokenizer).split(record)
    texts = [tokenizer.decode(part.tokens.tolist()) for part in stretches]
    words = SECRETS[text].split() if " " not in SECRETS[text] else [SECRETS[text][:6]]
    for word in words:
        assert not any(word in kept for kept in texts), texts
    assert texts[0].strip().startswith("The agent calls")
    assert texts[-1].endswith("the task.")
    assert len(stretches) >= 2
    for part in stretches:
        assert (part.run_id, part.segment, part.subject) == ("run", 4, "s")
        assert ids[part.part : part.part + len(part.tokens)] == part.tokens.tolist()
    assert len({part.record_id for part in stretches}) == len(stretches)
    again = Redactor(tokenizer).split(record)
    assert [p.record_id for p in again] == [p.record_id for p in stretches]


@pytest.mark.parametrize("text", [*HARMLESS, "Größe: 3 + 4 → 12 🙂"])
def test_without_a_secret_the_record_stays_itself(tokenizer: TrainedTokenizer, text: str) -> None:
    record = TrajectoryRecord("a", "", np.array(tokenizer.encode(text)))
    assert Redactor(tokenizer).split(record) == [record]


def test_a_hook_of_ones_own_and_a_record_that_is_all_secret(tokenizer: TrainedTokenizer) -> None:
    def everything(text: str) -> list[tuple[int, int]]:
        return [(0, len(text)), (3, 3)]

    record = TrajectoryRecord("a", "", np.array(tokenizer.encode(HARMLESS[0])))
    redactor = Redactor(tokenizer, everything)
    assert redactor.split(record) == []
    assert redactor.num_masked == len(record.tokens)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no_such_module:f", "cannot import no_such_module"),
        ("json:no_such", "json has no function no_such"),
        ("math:pi", "math has no function pi"),
    ],
)
def test_a_hook_that_cannot_be_used_is_told_by_name(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"redact {name}: {said}"):
        load_finder(name)


def test_the_log_behind_it_never_sees_a_secret(tokenizer: TrainedTokenizer) -> None:
    inner = MemoryLog()
    log = RedactedLog(inner, Redactor(tokenizer))
    for text in SECRETS:
        log.append(TrajectoryRecord("a", "r", np.array(tokenizer.encode("Call it. " + text))))
    assert log.flush(10)
    records = log.read("a", START, 1000).records
    held = "\n".join(tokenizer.decode(r.tokens.tolist()) for r in records)
    assert not [s for s in SECRETS.values() if s in held]
    assert held.count("Call it.") >= len(SECRETS) - 1
    assert log.num_masked > 80
    log.delete(Deletion("a", DeletionKind.RUN, "r"))
    assert log.read("a", START, 1000).records == ()
    log.check_integrity()
    log.close()


def test_a_record_that_cannot_be_searched_is_not_written(tokenizer: TrainedTokenizer) -> None:
    def broken(text: str) -> list[tuple[int, int]]:
        raise RuntimeError("pattern")

    inner = MemoryLog()
    log = RedactedLog(inner, Redactor(tokenizer, broken))
    log.append(TrajectoryRecord("a", "", np.array(tokenizer.encode(HARMLESS[0]))))
    log.flush(2)
    assert inner.read("a", START).entries == ()
    assert log.num_dropped == 1
    log.close()
