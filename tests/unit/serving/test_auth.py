from __future__ import annotations

from pathlib import Path

import pytest

from whiflash.core.errors import ConfigError, PermissionDeniedError, UnauthenticatedError
from whiflash.serving.auth import Authenticator, require
from whiflash.serving.caller import LOCAL_CALLER, Caller, Scope
from whiflash.serving.keys import (
    ApiKey,
    KeyLimits,
    digest_of,
    environment_key,
    key_entry,
    new_key,
    parse_keys,
    read_key_file,
)


def entry(secret: str, key_id: str = "k", limits: KeyLimits | None = None) -> str:
    return key_entry(secret, key_id, "acme", "web", [Scope.GENERATE, Scope.DEBUG],
                     limits or KeyLimits())  # fmt: skip


def test_a_key_written_and_read_again_opens_its_own_door_only(tmp_path: Path) -> None:
    file, secrets = tmp_path / "keys.toml", [new_key(), new_key()]
    limits = KeyLimits(4, 6000, 2.0)
    file.write_text(entry(secrets[0], "first", limits) + "\n" + entry(secrets[1], "second"))
    auth = Authenticator(read_key_file(file))
    callers = [auth.caller(f"Bearer {secret}") for secret in secrets]
    scopes = frozenset({Scope.GENERATE, Scope.DEBUG})
    assert callers == [
        Caller("acme", "web", scopes, "first"), Caller("acme", "web", scopes, "second")
    ]  # fmt: skip
    assert auth.limits(callers[0]) == limits
    assert auth.limits(callers[1]) == KeyLimits()


def test_end_users_share_where_the_key_says_so_and_nowhere_else() -> None:
    text = key_entry(
        new_key(), "k", "acme", "web", [Scope.GENERATE], KeyLimits(), shares_users=True
    )
    (shared,) = parse_keys("a key file", text)
    (apart,) = parse_keys("a key file", entry(new_key()))
    assert (shared.caller.shares_users, apart.caller.shares_users) == (True, False)


def test_the_file_holds_no_secret() -> None:
    secret = new_key()
    text = entry(secret)
    assert secret not in text
    assert digest_of(secret) in text
    assert len(secret) >= 43 + len("wf-")


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer ", "Basic abc", "Bearer wrong", "Bearer " + "x" * 5000, "é",
     "Bearer é", "Bearer \udc80"],
)  # fmt: skip
def test_anything_else_is_refused(authorization: str | None) -> None:
    auth = Authenticator([ApiKey(digest_of(new_key()), LOCAL_CALLER)])
    with pytest.raises(UnauthenticatedError):
        auth.caller(authorization)


def test_a_digest_is_no_key() -> None:
    digest = digest_of(new_key())
    auth = Authenticator([ApiKey(digest, LOCAL_CALLER)])
    for presented in (digest, digest.removeprefix("sha256:")):
        with pytest.raises(UnauthenticatedError):
            auth.caller(f"Bearer {presented}")


def test_scheme_and_spaces_are_taken_as_clients_send_them() -> None:
    secret = new_key()
    auth = Authenticator([environment_key(secret)])
    for value in (f"Bearer {secret}", f"bearer {secret}", f" Bearer  {secret} "):
        assert auth.caller(value).key_id == "environment"


def test_without_keys_everybody_is_local_whatever_they_send() -> None:
    for value in (None, "Bearer placeholder"):
        assert Authenticator().caller(value) == LOCAL_CALLER


def test_scopes_are_required_by_name() -> None:
    caller = environment_key("x" * 40).caller
    require(caller, Scope.GENERATE)
    with pytest.raises(PermissionDeniedError, match="debug"):
        require(caller, Scope.DEBUG)


GOOD = entry("s" * 40)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "[[keys]] tables"),
        ("keys = 3", "[[keys]] tables"),
        ("keys = [3]", "must be a [[keys]] table"),
        ("x = 1\n" + GOOD, "nothing else"),
        ("[[keys", "broken TOML"),
        (GOOD + GOOD, "two keys have the same id"),
        (GOOD + GOOD.replace('id = "k"', 'id = "l"'), "two keys have the same digest"),
        (GOOD.replace("sha256:", ""), "digest must be"),
        (GOOD.replace('tenant = "acme"', ""), "tenant must be"),
        (GOOD.replace('"acme"', '"a b"'), "tenant must be"),
        (GOOD.replace('"debug"', '"root"'), "scopes must be a list"),
        (GOOD.replace('["generate", "debug"]', "7"), "scopes must be a list"),
        (GOOD + "max_in_flight = 0", "max_in_flight"),
        (GOOD + "tokens_per_minute = true", "tokens_per_minute"),
        (GOOD + "weight = 0", "weight"),
        (GOOD + 'shares_users = "yes"', "shares_users must be true or false"),
        (GOOD + "wieght = 1", "unknown field 'wieght'"),
    ],
)
def test_a_bad_file_is_told_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match="key file") as caught:
        read_key_file(file)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_one_that_is_no_text_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_key_file(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="UTF-8"):
        read_key_file(tmp_path / "bytes.toml")


def test_a_key_that_can_be_guessed_is_refused() -> None:
    with pytest.raises(ConfigError, match="32"):
        environment_key("short")
