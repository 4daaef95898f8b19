"""Templates: golden prompts, refusals, and what is written comes back when it is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whiflash.chat.format import ChatFormat
from whiflash.chat.messages import ParsedMessage, ToolCall
from whiflash.core.errors import ConfigError, InvalidRequestError, ModelError
from whiflash.core.results import FinishReason

NOWHERE = Path("no-such-folder")
HERMES = ChatFormat.for_model(NOWHERE, "smollm2-135m")
TOOL = {"type": "function", "function": {"name": "clock", "parameters": {}}}
PLAIN = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"


def call(name: str, arguments: str) -> dict[str, Any]:
    return {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}


def with_template(folder: Path, text: str, name: str = "chat_template.jinja") -> ChatFormat:
    (folder / name).write_text(text)
    return ChatFormat.for_model(folder, "a-model")


def test_golden_agent_conversation() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Two times."},
        {
            "role": "assistant",
            "content": "Both.",
            "tool_calls": [call("clock", '{"z":1.0}'), call("clock", "{}")],
        },
        {"role": "tool", "tool_call_id": "c", "content": "9"},
        {"role": "tool", "content": [{"type": "text", "text": "1"}, {"type": "text", "text": "0"}]},
        {"role": "assistant", "content": None, "tool_calls": [call("clock", "{}")]},
        {"role": "tool", "content": "11"},
        {"role": "assistant", "content": "9, 10, 11."},
        {"role": "user", "content": "Thanks."},
    ]
    assert HERMES.render(messages, [TOOL]) == (
        "<|im_start|>system\nBe brief.\n\n"
        "You can call these tools, given as JSON, one a line:\n<tools>\n"
        '{"type": "function", "function": {"name": "clock", "parameters": {}}}\n</tools>\n'
        "To call a tool, write its name and arguments as JSON like this:\n"
        '<tool_call>\n{"name": "the tool", "arguments": {"argument": "value"}}\n</tool_call>'
        "<|im_end|>\n"
        "<|im_start|>user\nTwo times.<|im_end|>\n"
        "<|im_start|>assistant\nBoth.\n"
        '<tool_call>\n{"name": "clock", "arguments": {"z":1.0}}\n</tool_call>\n'
        '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\n9\n</tool_response>\n"
        "<tool_response>\n10\n</tool_response><|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'
        "<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\n11\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n9, 10, 11.<|im_end|>\n"
        "<|im_start|>user\nThanks.<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_golden_plain_conversation_has_the_model_s_own_system_line() -> None:
    prompt = HERMES.render([{"role": "user", "content": "Hi"}], add_generation_prompt=False)
    assert prompt == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
    )


def test_developer_speaks_as_system() -> None:
    prompt = HERMES.render([{"role": "developer", "content": "D"}])
    assert prompt == "<|im_start|>system\nD<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([], "at least one"),
        ([{"role": "robot", "content": "a"}], "message 0: role must be one of"),
        ([{"role": "user"}], "message 0: content is missing"),
        ([{"role": "assistant", "content": None}], "content is missing"),
        (["hello"], "must be an object"),
        ([{"role": "user", "content": 5}], "must be text"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "only parts of type text"),
        ([{"role": "user", "content": "a"}, {"role": "system", "content": "b"}], "message 1"),
        ([{"role": "user", "content": "a", "tool_calls": [call("f", "{}")]}], "only an assistant"),
        ([{"role": "assistant", "tool_calls": "x"}], "must be a list"),
        ([{"role": "assistant", "tool_calls": [{"function": {}}]}], "function.name"),
        ([{"role": "assistant", "tool_calls": [call("f", "[1]")]}], "must be a JSON object"),
        ([{"role": "assistant", "tool_calls": [call("f", "{")]}], "of f are not JSON"),
    ],
)
def test_bad_messages_are_refused_by_number(messages: Any, why: str) -> None:
    with pytest.raises(InvalidRequestError, match=why) as caught:
        HERMES.render(messages)
    assert caught.value.param == "messages"
    assert "\n" not in str(caught.value)


def test_bad_tools_are_refused() -> None:
    hi = [{"role": "user", "content": "Hi"}]
    with pytest.raises(InvalidRequestError, match="tool 0"):
        HERMES.render(hi, [{"type": "function"}])


def test_template_of_the_folder_and_its_tokens(tmp_path: Path) -> None:
    config = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": "config"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert ChatFormat.for_model(tmp_path, "m").render([{"role": "user", "content": ""}]) == "config"
    chat = with_template(tmp_path, "{{ bos_token }}{{ eos_token }}{{ mood }}" + PLAIN)
    assert chat.render([{"role": "user", "content": "a"}], mood="!") == "<s></s>![user]a"


def test_of_several_named_templates_the_one_for_tools_is_used(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    chat = ChatFormat.for_model(tmp_path, "m")
    assert chat.render([{"role": "user", "content": ""}]) == "T"


def test_override_wins_over_the_built_in_template(tmp_path: Path) -> None:
    path = tmp_path / "mine.jinja"
    path.write_text(PLAIN)
    chat = ChatFormat.for_model(NOWHERE, "smollm2-135m", path)
    assert chat.render([{"role": "user", "content": "a"}]) == "[user]a"


def test_missing_and_broken_templates_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="--chat-template"):
        ChatFormat.for_model(tmp_path, "m")
    with pytest.raises(ConfigError, match=r"none\.jinja: No such file"):
        ChatFormat.for_model(tmp_path, "m", tmp_path / "none.jinja")
    with pytest.raises(ModelError, match="line 2"):
        with_template(tmp_path, "\n{% for %}")
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(ModelError, match="not JSON"):
        ChatFormat.for_model(tmp_path, "m")


@pytest.mark.parametrize(
    "text",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages[7].content }}",
        "{{ messages + 1 }}",
        "{{ 1 / 0 }}",
        "{{ ''.__class__.__mro__ }}",
        "{% set _ = messages.append(1) %}",
    ],
)
def test_a_template_that_fails_or_reaches_out_of_its_sandbox(tmp_path: Path, text: str) -> None:
    chat = with_template(tmp_path, text)
    with pytest.raises(InvalidRequestError, match="chat template of a-model refuses"):
        chat.render([{"role": "user", "content": "a"}])


def test_generation_tags_and_loop_controls_are_known(tmp_path: Path) -> None:
    chat = with_template(
        tmp_path,
        "{% generation %}a{% endgeneration %}{% for m in messages %}{% break %}{% endfor %}",
    )
    assert chat.render([{"role": "user", "content": "x"}]) == "a"


def test_tools_are_never_dropped_without_a_word(tmp_path: Path) -> None:
    chat = with_template(tmp_path, PLAIN)
    with pytest.raises(InvalidRequestError, match="no tool calls in the hermes format"):
        chat.render([{"role": "user", "content": "a"}], [TOOL])
    coder = with_template(tmp_path, PLAIN + "{{ tools }}<tool_call>\n<function=f>")
    assert not coder.reads_calls
    with pytest.raises(InvalidRequestError, match="hermes"):
        coder.render([{"role": "tool", "content": "a"}])


@pytest.mark.parametrize("how", ["arguments | tojson", "arguments if 0 else arguments | tojson"])
def test_templates_that_write_json_get_the_arguments_unchanged(tmp_path: Path, how: str) -> None:
    chat = with_template(
        tmp_path,
        "{{ tools }}<tool_call>{% for m in messages %}{% for c in m.tool_calls %}"
        "{% set arguments = c.function.arguments %}{{ arguments.a }}|{{ " + how + " }}"
        "{% endfor %}{% endfor %}",
    )
    message = {"role": "assistant", "tool_calls": [call("f", '{"a":1.50, "b" :"\\u00e9"}')]}
    assert chat.render([message]).endswith('1.5|{"a":1.50, "b" :"\\u00e9"}')


def test_the_prompt_says_whether_reasoning_is_open(tmp_path: Path) -> None:
    chat = with_template(tmp_path, PLAIN + "<think></think>")
    stop = FinishReason.STOP
    assert chat.parse("x<think>\n", "a</think>b", stop).reasoning == "a"
    assert chat.parse("x", "<think>a</think>b", stop).reasoning == "a"
    assert chat.parse("<think>\n\n</think>\n\n", "<think>a", stop).content == "<think>a"


_TEXTS = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from('<>{}[]"\\/\n')),
    max_size=12,
)
_TRICKY = st.sampled_from(["</tool_call>", "<tool_call>\n{", "<|im_end|>", "\\", '"}}', "\u2028"])
_STRINGS = st.one_of(_TEXTS, st.builds(str.__add__, _TEXTS, _TRICKY))
_VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False),
        _STRINGS,
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_STRINGS, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
_CALLS = st.builds(
    lambda name, values, ascii_, indent: ToolCall(
        name, json.dumps(values, ensure_ascii=ascii_, indent=indent)
    ),
    _STRINGS.filter(bool),
    st.dictionaries(_STRINGS, _VALUES, max_size=3),
    st.booleans(),
    st.sampled_from([None, 0, 2]),
)
_CONTENT = st.text(max_size=12).map(lambda text: text.replace("<", "").strip("\n"))


@given(_CONTENT, st.lists(_CALLS, max_size=3), st.lists(st.integers(1, 16), max_size=9))
def test_what_is_rendered_is_parsed_and_rendered_again(
    content: str, calls: list[ToolCall], widths: list[int]
) -> None:
    message = ParsedMessage("", content=content, calls=tuple(calls)).to_openai()
    prompt = HERMES.render([{"role": "user", "content": "go"}])
    turn = HERMES.render(
        [{"role": "user", "content": "go"}, message], add_generation_prompt=False
    ).removeprefix(prompt)
    text = turn.removesuffix("<|im_end|>\n")
    parser = HERMES.parser(prompt)
    rest = text
    for width in widths:
        parser.feed(rest[:width])
        rest = rest[width:]
    parser.feed(rest)
    parser.finish(FinishReason.STOP)
    parsed = parser.message()
    assert (parsed.content, parsed.calls, parsed.broken) == (content, tuple(calls), ())
    assert parsed.is_regular
    assert parsed.to_history() == message
    assert parsed == HERMES.parse(prompt, text, FinishReason.STOP)


@given(
    st.lists(
        st.sampled_from(
            ["<tool_call>", "</tool_call>", '{"name": "f"', "}", "\n", " ",
             ', "arguments": {"a": "', '"', "\\", "<tool", "x", "{", ":"]
        ),
        max_size=14,
    ),
    st.sampled_from([FinishReason.STOP, FinishReason.LENGTH]),
)  # fmt: skip
def test_the_history_of_any_text_is_the_text(parts: list[str], reason: FinishReason) -> None:
    text = "".join(parts)
    user = {"role": "user", "content": "go"}
    prompt = HERMES.render([user])
    message = HERMES.parse(prompt, text, reason)
    again = HERMES.render([user, message.to_history()], add_generation_prompt=False)
    assert again == f"{prompt}{text}<|im_end|>\n"
