"""EngineConfig: what is accepted, what is refused, and that refusals name both options."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from whiflash.config import (
    ENVIRONMENT,
    EngineConfig,
    ServerConfig,
    parse_bytes,
    read_environment,
)
from whiflash.core.errors import ConfigError


def test_defaults() -> None:
    config = EngineConfig()
    assert config.model == "smollm2-135m"
    assert config.arms == ("retrieval",)
    assert config.memory is None


@pytest.mark.parametrize(
    ("text", "count"),
    [("4GiB", 4 * 2**30), ("500 MB", 500 * 10**6), ("1.5g", 1_500_000_000), ("1234567", 1234567),
     ("2Ti", 2**41), ("64kib", 65536), (" 8 GiB ", 2**33)],
)  # fmt: skip
def test_sizes(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "GiB", "4 X", "-1", "1e9", "4GiBB", "0x10"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="no size"):
        parse_bytes(text)


@given(st.integers(2**20, 2**50))
def test_a_count_of_bytes_stays_what_it_is(count: int) -> None:
    assert EngineConfig.of(memory=count).memory == count
    assert EngineConfig.of(memory=str(count)).memory == count


def test_one_drafter_may_be_given_as_a_string() -> None:
    assert EngineConfig.of(drafters="retrieval").drafters == ("retrieval",)
    assert EngineConfig.of(drafters="none").arms == ()
    assert EngineConfig.of(drafters=()).arms == ()


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"drafters": ("none", "retrieval")}, ("none", "retrieval")),
        ({"drafters": ("retrieval", "retrieval")}, ("drafters",)),
        ({"max_draft_depth": 9, "max_draft_nodes": 8}, ("max_draft_depth", "max_draft_nodes")),
        ({"context_limit": 8, "max_draft_nodes": 8}, ("context_limit", "max_draft_nodes")),
        ({"max_batch": 0}, ("max_batch",)),
        ({"plain_share": 1.5}, ("plain_share",)),
        ({"memory": 1024}, ("memory",)),
        ({"temperature": 1}, ("unknown option 'temperature'",)),
        ({"max_batch": 0, "dtype": "f8"}, ("max_batch", "dtype")),
    ],
)
def test_refusals_name_the_options(fields: dict[str, object], names: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        EngineConfig.of(**fields)
    assert "\n" not in str(caught.value)
    assert all(name in str(caught.value) for name in names)


WRONG = ["", "x y", -1, 0, 1.5, 10**30, True, [], [1], {}, {"a": 1}, [["x"]], float("nan")]
RAW = re.compile(r"should|type=|valid |Value error|Extra inputs|pattern|Literal|\n")


@pytest.mark.parametrize("kind", [EngineConfig, ServerConfig])
def test_whatever_is_wrong_is_said_in_plain_words(kind: type[EngineConfig | ServerConfig]) -> None:
    """A line that names the option, without a validator's own language."""
    said: dict[str, list[str]] = {name: [] for name in kind.model_fields}
    for name, lines in said.items():
        for value in WRONG:
            try:
                kind.of(**{name: value})
            except ConfigError as error:
                lines.append(str(error))
        assert lines, name
        assert all(name in line for line in lines)
    assert [line for lines in said.values() for line in lines if RAW.search(line)] == []


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"max_batch": 0}, "max_batch: must be at least 1, got 0"),
        ({"plain_share": 1.5}, "plain_share: must be at most 1, got 1.5"),
        ({"store_max_age_s": 0}, "store_max_age_s: must be above 0, got 0"),
        ({"max_batch": "many"}, "max_batch: must be a whole number, got 'many'"),
        ({"device": "tpu"}, "device: must be cpu, cuda or cuda:N, got 'tpu'"),
        ({"dtype": "f8"}, "dtype: must be 'auto', 'float32', 'bfloat16' or 'float64', got 'f8'"),
        ({"model": ""}, "model: must not be empty, got ''"),
        ({"memory": "lots"}, "memory: 'lots' is no size; write 4GiB, 500MB or a count of bytes"),
        ({"drafters": list("abcde")}, "drafters: must have at most 4 entries, got "),
        ({"assume_noeviction": "perhaps"}, "assume_noeviction: must be true or false, got "),
        ({"store": "foo://x"}, "store: foo:// is no store; write one of redis://, rediss://, unix"),
    ],
)
def test_the_line_says_what_is_allowed(fields: dict[str, object], line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        EngineConfig.of(**fields)
    assert str(caught.value).startswith(line)


def test_a_smaller_node_limit_alone_needs_no_smaller_depth() -> None:
    assert EngineConfig.of(max_draft_nodes=4).max_draft_nodes == 4


def test_frozen() -> None:
    with pytest.raises(ValidationError):
        EngineConfig().max_batch = 3  # type: ignore[misc]


def test_file_and_overrides(tmp_path: Path) -> None:
    file = tmp_path / "engine.toml"
    file.write_text('memory = "2GiB"\ndrafters = ["retrieval"]\nmax_batch = 4\n')
    config = EngineConfig.load(file, max_batch=2)
    assert (config.memory, config.max_batch) == (2**31, 2)
    as_json = tmp_path / "engine.json"
    as_json.write_text('{"policy": "static"}')
    assert EngineConfig.load(as_json).policy == "static"


def test_only_listed_variables_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHIFLASH_CACHE", "")
    assert read_environment("WHIFLASH_CACHE") is None
    monkeypatch.setenv("WHIFLASH_CACHE", "/x")
    assert read_environment("WHIFLASH_CACHE") == "/x"
    with pytest.raises(KeyError):
        read_environment("WHIFLASH_UNLISTED")


def test_every_variable_that_the_code_reads_is_listed() -> None:
    import whiflash

    folder = Path(whiflash.__file__).parent
    used = {
        name
        for file in folder.rglob("*.py")
        for name in re.findall(r"\bWHIFLASH_[A-Z_]+\b", file.read_text(encoding="utf-8"))
    }
    assert used <= ENVIRONMENT.keys()
