"""What is wrong is told in one line, with exit status 2, before any model is loaded."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from whiflash.cli.main import run
from whiflash.config import EngineConfig, ServerConfig
from whiflash.core.errors import ConfigError
from whiflash.serving.keys import read_key_file


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("WHIFLASH_API_KEY", raising=False)
    monkeypatch.delenv("WHIFLASH_STORE_KEYS", raising=False)
    monkeypatch.setenv("WHIFLASH_DATA", str(tmp_path / "data"))


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Runs `whiflash serve`, which must fail as a user's mistake; the line it printed."""
    assert run(["serve", "--model", "/no/such/model", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("whiflash: ")
    return line


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_a_public_address_needs_keys(capsys: pytest.CaptureFixture[str], host: str) -> None:
    line = told(capsys, "--host", host, "--http-port", "0", "--grpc-port", "0")
    assert "is public and there are no keys" in line
    assert "whiflash keys new" in line


@pytest.mark.parametrize("host", ["300.1.1.1", "999", "1.2.3", "a:b", "http://a", "[::1]", "a b"])
def test_what_is_no_address_is_called_so(capsys: pytest.CaptureFixture[str], host: str) -> None:
    line = told(capsys, "--host", host, "--http-port", "0", "--grpc-port", "0")
    assert f"host {host!r} is no address" in line
    assert "public" not in line


@pytest.mark.parametrize("option", ["--http-port", "--grpc-port"])
def test_a_port_in_use_is_told_with_its_option(
    capsys: pytest.CaptureFixture[str], option: str
) -> None:
    other = {"--http-port": "--grpc-port", "--grpc-port": "--http-port"}[option]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = told(capsys, option, str(port), other, "0")
    assert f"127.0.0.1:{port} is in use; choose another port with {option}" in line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--http-port", "8000", "--grpc-port", "8000"), "need one each"),
        (("--http-port", "70000"), "http_port"),
        (("--keys", "/no/such/file"), "cannot read the key file /no/such/file"),
        (("--config", "/no/such/file.toml"), "cannot read it"),
        (("--drain-s", "-1"), "drain_s"),
        (("--log-level", "loud"), "log_level"),
        (("--tracing", "yes"), "tracing"),
        (("--host", ""), "host"),
        (("--http-port", "0", "--grpc-port", "0"), "/no/such/model"),
    ],
)
def test_mistakes_are_named(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert said in told(capsys, *arguments)


def test_a_weak_key_and_two_sources_of_keys_are_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WHIFLASH_API_KEY", "short")
    assert "at least 32" in told(capsys)
    assert "exclude each other" in told(capsys, "--keys", str(tmp_path / "keys.toml"))


def test_one_file_holds_the_options_of_engine_and_server(tmp_path: Path) -> None:
    file = tmp_path / "whiflash.toml"
    file.write_text('model = "m"\nmax_batch = 3\n[server]\nhttp_port = 8123\n')
    assert EngineConfig.load(file).max_batch == 3
    assert ServerConfig.load(file).http_port == 8123
    assert ServerConfig.load(file, http_port=1).http_port == 1
    file.write_text("[server]\nhtpp_port = 1\n")
    with pytest.raises(ConfigError, match=r"unknown option 'htpp_port'.*http_port"):
        ServerConfig.load(file)
    file.write_text("server = 3\n")
    with pytest.raises(ConfigError, match="table"):
        ServerConfig.load(file)


@pytest.mark.parametrize(
    ("host", "is_public"),
    [("127.0.0.1", False), ("127.9.9.9", False), ("::1", False), ("localhost", False),
     ("0.0.0.0", True), ("::", True), ("10.0.0.1", True), ("a.example", True)],
)  # fmt: skip
def test_only_loopback_is_private(host: str, is_public: bool) -> None:
    assert ServerConfig.of(host=host).is_public is is_public


def test_keys_new_adds_to_a_file_that_serve_reads(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "keys.toml"
    secrets = []
    for key_id, more in (("one", ()), ("two", ("--scope", "debug", "--max-in-flight", "3"))):
        assert run(["keys", "new", "--id", key_id, "--tenant", "acme", *more,
                    "--file", str(file)]) == 0  # fmt: skip
        secrets.append(capsys.readouterr().out.strip())
    keys = read_key_file(file)
    assert [key.caller.key_id for key in keys] == ["one", "two"]
    assert keys[1].limits.max_in_flight == 3
    assert not any(secret in file.read_text() for secret in secrets)
    assert file.stat().st_mode & 0o077 == 0
    assert run(["keys", "new", "--id", "one", "--tenant", "acme", "--file", str(file)]) == 2
    assert len(read_key_file(file)) == 2


def test_keys_new_without_a_file_prints_key_and_entry(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["keys", "new", "--id", "one", "--tenant", "acme"]) == 0
    secret, _, entry = capsys.readouterr().out.partition("\n")
    assert secret.startswith("wf-")
    assert "[[keys]]" in entry
    assert run(["keys", "new", "--id", "one", "--tenant", "acme", "--scope", "root"]) == 2


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        (("--redis", "redis://127.0.0.1:1/0"), "needs WHIFLASH_STORE_KEYS"),
        (("--redis", "127.0.0.1:6379"), "is no URL; write redis://"),
        (
            ("--redis", "foo://u:secret@x"),
            "foo:// is no store; write one of redis://, rediss://, u",
        ),
        (
            ("--store", "foo://u:secret@x"),
            "foo:// is no store; write one of redis://, rediss://, u",
        ),
        (("--redis", "redis+sentinel://a"), "redis+sentinel:// is no store: Redis Sentinel is not"),
        (("--redis", "redis+cluster://a"), "redis+cluster:// is no store: Redis Cluster is not"),
        (("--store", __file__), f"{__file__} is a file; name a folder"),
        (("--store", f"{__file__}/below"), f"{__file__} is a file; name a folder"),
        (("--redis", "redis://h/0", "--store", "file"), "exclude each other"),
    ],
)
def test_a_store_that_cannot_be_used_is_told(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], rule: str
) -> None:
    line = told(capsys, "--http-port", "0", "--grpc-port", "0", *options)
    assert rule in line
    assert "secret" not in line
