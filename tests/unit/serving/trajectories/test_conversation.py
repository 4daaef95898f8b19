"""What of a recorded conversation is stored: the assistant's own tokens, exactly as templated."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest

from whiflash.chat.format import ChatFormat
from whiflash.chat.source import TemplateSource, own_source
from whiflash.core.errors import InvalidRequestError
from whiflash.serving.trajectories.conversation import Conversation, TurnReader
from whiflash.serving.trajectories.stored_turn import read_turn, turn_json
from whiflash.testing.backends import EOS_ID, CharacterTokenizer
from whiflash.trajectories.record import TrajectoryRecord
from whiflash.trajectories.scope import Owner, ScopeKey, Scopes

END = "<|im_end|>"
SCOPES = Scopes((ScopeKey("k1", b"s" * 32),), "characters")
OWNER = partial(Owner, "acme", "web")


class ChatTokenizer(CharacterTokenizer):
    """The end of a message is one id, as in real vocabularies."""

    def encode(self, text: str) -> list[int]:
        return super().encode(text.replace(END, chr(EOS_ID)))

    def decode(self, token_ids: Sequence[int]) -> str:
        return super().decode(token_ids)


def reader() -> TurnReader:
    source = own_source("smollm2-135m")
    assert source is not None
    return TurnReader(ChatFormat(source), ChatTokenizer(), (EOS_ID,))


CALL = {"function": {"name": "ls", "arguments": '{"path": "x"}'}, "type": "function"}
RUN = Conversation(
    (
        {"role": "system", "content": "be good"},
        {"role": "user", "content": "secret words of the user"},
        {"role": "assistant", "content": "I look."},
        {"role": "user", "content": "and?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "output of a tool"},
        {"role": "assistant", "content": "Done."},
    ),
    run_id="r1", agent="g", subject="ann", model="gpt",
)  # fmt: skip


def records(run: Conversation = RUN) -> list[TrajectoryRecord]:
    return reader().records(run, SCOPES, OWNER)


def test_the_assistants_turns_are_stored_and_nothing_else() -> None:
    texts = ["".join(map(chr, record.tokens.tolist())) for record in records()]
    assert texts[0] == "I look.\0"
    assert texts[2] == "Done.\0"
    assert texts[1].startswith("<tool_call>")
    assert '"path": "x"' in texts[1]
    assert texts[1].endswith("</tool_call>\0")
    assert not any("user" in text or "output" in text for text in texts)


def test_labels_and_scope() -> None:
    first = records()[0]
    assert first.namespace == SCOPES.namespace(Owner("acme", "web", "ann"))
    assert (first.run_id, first.template_id, first.subject) == ("r1", "g", "ann")
    assert (first.model_label, first.tokenizer) == ("gpt", "characters")
    assert [record.segment for record in records()] == [0, 1, 2]


def test_the_same_run_gives_the_same_ids_and_another_gives_others() -> None:
    ids = [record.record_id for record in records()]
    assert [record.record_id for record in records()] == ids
    other = Conversation(RUN.messages, run_id="r2", subject="ann")
    assert not set(ids) & {record.record_id for record in records(other)}
    unnamed = Conversation(RUN.messages)
    assert unnamed.run_name == Conversation(RUN.messages).run_name
    assert unnamed.run_name != Conversation(RUN.messages[:-1]).run_name


def test_a_conversation_that_begins_with_the_assistant() -> None:
    (record,) = records(Conversation(({"role": "assistant", "content": "hello"},)))
    assert "".join(map(chr, record.tokens.tolist())) == "hello\0"


@pytest.mark.parametrize(
    "messages",
    [
        (), ({"role": "robot", "content": "x"},), ({"role": "user"},),
        ({"role": "user", "content": "x"}, {"role": "assistant", "content": None}),
        ({"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}, {"role": "tool"}),
    ],
)  # fmt: skip
def test_what_the_template_cannot_write_is_refused_as_a_whole(
    messages: tuple[dict[str, object], ...],
) -> None:
    with pytest.raises(InvalidRequestError):
        records(Conversation(messages))


def test_a_template_that_writes_turns_otherwise_than_the_model_is_refused() -> None:
    template = (
        "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
        "{% if add_generation_prompt %}answer:{% endif %}"
    )
    chat = ChatFormat(TemplateSource(template, "a template", {}))
    odd = TurnReader(chat, ChatTokenizer(), (EOS_ID,))
    run = Conversation(({"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}))
    with pytest.raises(InvalidRequestError, match="message 1: the chat template"):
        odd.records(run, SCOPES, OWNER)


def test_an_exported_turn_comes_back_as_it_was_for_whoever_takes_it() -> None:
    record = records()[1]
    again = read_turn(turn_json(record), SCOPES, OWNER)
    assert np.array_equal(again.tokens, record.tokens)
    assert again.record_id == record.record_id
    for name in ("namespace", "run_id", "segment", "subject", "template_id", "time_ms"):
        assert getattr(again, name) == getattr(record, name)
    other = read_turn(turn_json(record), SCOPES, partial(Owner, "other", "web"))
    assert other.namespace != record.namespace


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"tokenizer": "another"}, "another"), ({"tokens": []}, "tokens"),
        ({"tokens": [1.5]}, "tokens"), ({"tokens": [2**31]}, "tokens"), ({"tokens": "a"}, "tokens"),
        ({"run_id": 3}, "run_id"), ({"segment": -1}, "segment"), ({"time_ms": "now"}, "time_ms"),
        ({"tokens": [True]}, "tokens"),
    ],
)  # fmt: skip
def test_damaged_exports_are_refused(change: dict[str, object], rule: str) -> None:
    turn = {**turn_json(records()[0]), **change}
    with pytest.raises(InvalidRequestError, match=rule):
        read_turn(turn, SCOPES, OWNER)
