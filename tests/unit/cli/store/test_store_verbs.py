"""`whiflash store` as it is typed: on a folder of its own, without any server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whiflash.cli.main import run
from whiflash.testing.http_server import write_chat_toy
from whiflash.trajectories.file_log import FileLog
from whiflash.trajectories.scope_keys import parse_scope_keys

SAMPLES = Path(__file__).parents[3] / "data" / "trajectories"
CHATS = str(SAMPLES / "chat.jsonl")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_chat_toy(tmp_path_factory.mktemp("toy")))


@pytest.fixture(autouse=True)
def _own_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WHIFLASH_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("WHIFLASH_STORE_KEYS", raising=False)


Capture = pytest.CaptureFixture[str]


def said(capsys: Capture, *arguments: str, status: int = 0) -> str:
    assert run(["store", *arguments]) == status
    return capsys.readouterr().out


def imported(capsys: Capture, model: str, *arguments: str, status: int = 0) -> dict[str, int]:
    text = said(capsys, "import", *arguments, "--model", model, "--json", status=status)
    numbers: dict[str, int] = json.loads(text)
    return numbers


def counted(capsys: Capture, *arguments: str) -> list[int]:
    return sorted(
        one["num_records"] for one in json.loads(said(capsys, "stats", "--json", *arguments))
    )


def test_import_twice_stats_export_and_import_elsewhere(
    capsys: Capture, model: str, tmp_path: Path
) -> None:
    first = imported(capsys, model, CHATS)
    assert first["turns"] > 4
    assert first["bad"] == 0
    again = imported(capsys, model, CHATS)
    assert (again["turns"], again["known"]) == (0, first["turns"])
    assert sum(counted(capsys)) == first["turns"]
    lines = tmp_path / "out.jsonl"
    said(capsys, "export", "--out", str(lines))
    assert len(lines.read_text().splitlines()) == first["turns"]
    there = ("--store", str(tmp_path / "other"), "--tenant", "acme")
    moved = imported(capsys, model, str(lines), *there)
    assert (moved["turns"], moved["tokens"]) == (first["turns"], first["tokens"])
    assert imported(capsys, model, str(lines))["turns"] == 0


def test_every_layout_is_taken(capsys: Capture, model: str) -> None:
    names = ("chat.jsonl", "tau_bench.json", "swe_agent.traj", "bfcl_truth.jsonl")
    for name in names:
        result = imported(capsys, model, str(SAMPLES / name))
        assert result["turns"] + result["masked"] > 0, name
        assert result["bad"] == 0, name


def test_bad_records_are_named_and_the_others_taken(
    capsys: Capture, model: str, tmp_path: Path
) -> None:
    file = tmp_path / "runs.jsonl"
    good = {
        "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "bc d"}]
    }
    worse = {"messages": [{"role": "robot", "content": "a"}]}
    file.write_text("\n".join(["not json", json.dumps(good), json.dumps(worse), "{}"]))
    assert run(["store", "import", str(file), "--model", model, "--json"]) == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["turns"] == 1
    assert json.loads(out)["bad"] == 3
    for line in (1, 3, 4):
        assert f"{file}:{line}: " in err


def test_owners_are_apart(capsys: Capture, model: str) -> None:
    count = imported(capsys, model, CHATS)["turns"]
    imported(capsys, model, CHATS, "--tenant", "acme")
    imported(capsys, model, CHATS, "--tenant", "acme", "--project", "web", "--subject", "ann")
    assert counted(capsys) == [count, count, count]
    assert counted(capsys, "--tenant", "acme") == [count, count]
    said(capsys, "delete", "--subject", "ann", "--tenant", "acme", "--project", "web")
    assert counted(capsys, "--tenant", "acme", "--project", "web") == []
    said(capsys, "delete", "--run", "tau_bench_airline/0/0")
    (left,) = counted(capsys, "--tenant", "local")
    assert 0 < left < count
    said(capsys, "delete", "--whole-tenant", "--tenant", "acme")
    assert sum(counted(capsys)) == left


def test_a_redactor_of_ones_own_keeps_more_out(
    capsys: Capture, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "house_rules.py").write_text(
        "import re\n\n"
        "def find(text):\n    return [match.span() for match in re.finditer('project', text)]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    messages = [{"role": "user", "content": "who?"}]
    messages.append({"role": "assistant", "content": "ask for project falcon, please"})
    runs = tmp_path / "runs.jsonl"
    runs.write_text(json.dumps({"messages": messages}))
    tokens = [
        imported(capsys, model, str(runs), "--store", str(tmp_path / name), *flags)["tokens"]
        for name, flags in (("plain", ()), ("own", ("--redact", "house_rules:find")))
    ]
    assert 0 < tokens[1] < tokens[0]


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (("import", CHATS, "--redact", "nothing"), "redact"),
        (("import", CHATS, "--redact", "no_such_module:f"), "cannot import no_such_module"),
        (("delete",), "say what to delete"),
        (("delete", "--run", "a", "--subject", "b"), "exclude each other"),
        (("delete", "--whole-project", "--whole-tenant"), "exclude each other"),
        (("delete", "--run", ""), "say what to delete"),
        (("import", "nothing.jsonl"), "is no file"),
        (("stats", "--redis", "redis://127.0.0.1:1/0"), "WHIFLASH_STORE_KEYS"),
        (("stats", "--store", "x", "--server", "y"), "name one place"),
        (("key", "no id"), "ID:SECRET"),
        (("delete", "--whole-tenant", "--tenant", ""), "--tenant is empty"),
        (("delete", "--whole-tenant", "--project", "web"), "leave out --project"),
        (("stats", "--store", ""), "--store is empty"),
        (("stats", "--project", "", "--tenant", "a"), "--project is empty"),
        (("stats", "--server", ""), "--server is empty"),
        (("stats", "--tenant", "a", "--server", "127.0.0.1:1"), "leave out --tenant"),
        (
            ("import", CHATS, "--chat-template", CHATS, "--server", "127.0.0.1:1"),
            "leave out --chat-template",
        ),
        (("export", "--store", "memory"), "memory"),
        (("stats",), "there is no trajectory store at"),
        (("export", "--store", CHATS), "is a file; name a folder"),
        (("import", CHATS, "--model", "no-such-model"), "no-such-model"),
        (("import", str(SAMPLES)), "is no file"),
        (("import",), "Missing argument"),
    ],
)
def test_mistakes_are_told_in_one_line(
    capsys: Capture, arguments: tuple[str, ...], rule: str
) -> None:
    assert run(["store", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert rule in line


def test_an_export_to_a_folder_is_told(capsys: Capture, model: str) -> None:
    imported(capsys, model, CHATS)
    assert run(["store", "export", "--out", str(SAMPLES)]) == 2
    assert "Is a directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    "verb", [("stats",), ("stats", "--json"), ("export",), ("delete", "--run", "r"),
             ("delete", "--whole-tenant"), ("export", "--out")]
)  # fmt: skip
@pytest.mark.parametrize("kind", ["missing", "empty", "other"])
def test_where_no_store_is_none_is_made(
    capsys: Capture, tmp_path: Path, verb: tuple[str, ...], kind: str
) -> None:
    """A mistyped path had become a store, and its deletion a success."""
    mistyped = tmp_path / "mistyped"
    if kind != "missing":
        mistyped.mkdir()
    if kind == "other":
        (mistyped / "notes.txt").write_text("mine")
    if verb[-1] == "--out":
        verb = (*verb, str(tmp_path / "out.jsonl"))
    before = sorted(tmp_path.rglob("*"))
    assert run(["store", *verb, "--store", str(mistyped)]) == 2
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert out == ""
    assert f"no trajectory store at {mistyped}" in line
    assert sorted(tmp_path.rglob("*")) == before


def test_an_import_of_no_file_makes_no_store(capsys: Capture, tmp_path: Path) -> None:
    assert run(["store", "import", "nothing.jsonl", "--store", str(tmp_path / "new")]) == 2
    assert "is no file" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_deletion_says_what_it_found(capsys: Capture, model: str, tmp_path: Path) -> None:
    """Unknown names had read like hits."""
    count = imported(capsys, model, CHATS)["turns"]
    lines = tmp_path / "out.jsonl"
    said(capsys, "export", "--out", str(lines))
    logs = sorted((tmp_path / "data").rglob("*.log"))
    before = [path.read_bytes() for path in logs]
    for what in (("--run", "nope"), ("--subject", "nope"), ("--whole-tenant", "--tenant", "nope"),
                 ("--whole-project", "--project", "nope")):  # fmt: skip
        assert run(["store", "delete", *what]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "there are no turns of" in line
        assert "nothing was deleted" in line
    assert sorted((tmp_path / "data").rglob("*.log")) == logs
    assert [path.read_bytes() for path in logs] == before
    hit = said(capsys, "delete", "--run", "tau_bench_airline/0/0")
    (left,) = counted(capsys)
    assert hit == f"deleted {count - left} turns of run 'tau_bench_airline/0/0'\n"
    again = imported(capsys, model, str(lines))
    assert (again["turns"], again["known"], again["deleted"]) == (0, left, count - left)
    assert "were deleted here before" in said(capsys, "import", str(lines), "--model", model)
    assert counted(capsys) == [left]


def test_an_export_moves_every_turn_though_batches_end_between_equal_ones(
    capsys: Capture, model: str, tmp_path: Path
) -> None:
    """Turns without a run id that say the same: what a server keeps of calls that name no run."""
    imported(capsys, model, CHATS)
    (turn, *_) = map(json.loads, said(capsys, "export").splitlines())
    turns = [{**turn, "run_id": "", "record_id": f"{n + 1:016x}"} for n in range(70)]
    file = tmp_path / "turns.jsonl"
    file.write_text("\n".join(map(json.dumps, turns)))
    assert imported(capsys, model, str(file), "--project", "a")["turns"] == 70
    moved = tmp_path / "moved.jsonl"
    said(capsys, "export", "--project", "a", "--out", str(moved))
    other = ("--store", str(tmp_path / "other"))
    assert imported(capsys, model, str(moved), *other)["turns"] == 70
    assert imported(capsys, model, str(moved), *other)["known"] == 70
    assert counted(capsys, *other) == [70]


@pytest.mark.parametrize("value", ["", "xyz", "0" * 16, 7, "F" * 16, "f" * 17])
def test_a_record_id_is_read_strictly(
    capsys: Capture, model: str, tmp_path: Path, value: object
) -> None:
    imported(capsys, model, CHATS)
    turn = json.loads(said(capsys, "export").splitlines()[0])
    file = tmp_path / "turns.jsonl"
    file.write_text(json.dumps({**turn, "record_id": value}))
    is_bad = value != ""
    assert imported(capsys, model, str(file), status=2 * is_bad)["bad"] == is_bad


def test_a_store_that_another_process_holds_is_told(capsys: Capture, tmp_path: Path) -> None:
    log = FileLog(tmp_path / "held")
    try:
        assert run(["store", "stats", "--store", str(tmp_path / "held")]) == 2
        assert "--server HOST:PORT" in capsys.readouterr().err
    finally:
        log.close()


def test_a_new_secret_can_be_used_at_once(capsys: Capture) -> None:
    (key,) = parse_scope_keys(said(capsys, "key", "2026-12"), "x")
    assert key.key_id == "2026-12"


def test_half_a_surrogate_pair_is_a_bad_record_and_a_whole_one_is_text(
    capsys: Capture, model: str, tmp_path: Path
) -> None:
    """It cannot be tokenised, and could not be exported again."""
    file = tmp_path / "runs.jsonl"
    turns = [{"role": "user", "content": "u"}, {"role": "assistant", "content": "yes"}]
    half = [turns[0], {"role": "assistant", "content": "\ud83d x"}]
    records = [{"id": "\ud800", "messages": turns}, {"messages": half},
               {"id": "\U0001f600", "messages": turns}]  # fmt: skip
    file.write_text("\n".join(map(json.dumps, records)))
    assert imported(capsys, model, str(file), status=2) == {
        "turns": 1, "known": 0, "masked": 0, "tokens": 3, "deleted": 0, "expired": 0, "bad": 2
    }  # fmt: skip
    (line,) = said(capsys, "export").splitlines()
    assert line.isascii()
    assert json.loads(line)["run_id"] == "\U0001f600"


def test_a_server_that_is_away_is_one_line(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    monkeypatch.setenv("WHIFLASH_STORE_KEYS", "k1:" + "a" * 64)
    away = ("--redis", "redis://127.0.0.1:1/0")
    for verb in (
        ("stats", *away), ("export", *away), ("delete", "--run", "r", *away),
        ("import", CHATS, "--model", model, *away), ("stats", "--server", "127.0.0.1:1"),
    ):  # fmt: skip
        assert run(["store", *verb]) == 2
        out, err = capsys.readouterr()
        assert (out, len(err.splitlines())) == ("", 1), verb


def test_a_template_is_compiled_once_for_all_runs(
    capsys: Capture, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from whiflash.chat.format import ChatFormat

    made: list[Path] = []
    for_model = ChatFormat.for_model

    def counted(folder: Path, *rest: object) -> ChatFormat:
        made.append(folder)
        return for_model(folder, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(ChatFormat, "for_model", counted)
    file = tmp_path / "runs.jsonl"
    turns = [{"role": "user", "content": "u"}, {"role": "assistant", "content": "yes"}]
    file.write_text("\n".join(json.dumps({"id": n, "messages": turns}) for n in range(70)))
    assert imported(capsys, model, str(file))["turns"] == 70
    assert len(made) == 1
