"""How a Redis server is reached, and which ones are refused by name."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import redis
from redis.backoff import NoBackoff
from redis.maint_notifications import MaintNotificationsConfig
from redis.retry import Retry

from whiflash.core.errors import ConfigError
from whiflash.core.places import STORE_SCHEMES

MIN_VERSION = (6, 2)
TIMEOUT_S = 1.0
NOEVICTION = "noeviction"
_NO_RETRY = Retry(NoBackoff(), 0)  # the breaker decides when to ask again


def open_client(url: str, timeout_s: float = TIMEOUT_S) -> redis.Redis:
    """A client that gives up after `timeout_s` and never retries by itself; connects when first
    used. Raises ConfigError on a URL that is not redis://, rediss:// or unix://."""
    _check_url(url)
    try:
        return redis.Redis.from_url(
            url,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=_NO_RETRY,
            protocol=2,
            driver_info=None,
            maint_notifications_config=MaintNotificationsConfig(enabled=False),
        )
    except (ValueError, TypeError) as error:
        raise ConfigError(f"the Redis URL {without_password(url)} is wrong: {error}") from None


def _check_url(url: str) -> None:
    scheme = url.partition("://")[0].lower()
    shown = without_password(url)
    for word in ("sentinel", "cluster"):
        if word in scheme:
            raise ConfigError(
                f"Redis {word.capitalize()} is not supported ({shown}); give the redis:// URL of "
                "a single server or of a proxy in front"
            )
    if scheme not in STORE_SCHEMES or "://" not in url:
        raise ConfigError(f"{shown} is no Redis URL; write redis://, rediss:// or unix://")
    if scheme != "unix" and "," in urlsplit(url).netloc.rpartition("@")[2]:
        raise ConfigError(
            f"{shown} names several hosts, as for Redis Cluster or Sentinel, which are not "
            "supported; give a single server"
        )


def without_password(url: str) -> str:
    """The URL as it may be printed."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    user = (parts.username or "") + ":***@" if parts.password else ""
    query = re.sub(r"(?i)(password|ssl_password)=[^&]*", r"\1=***", parts.query)
    return urlunsplit((parts.scheme, user + host, parts.path, query, ""))


def verify(client: redis.Redis, *, assume_noeviction: bool) -> None:
    """Asks the server what it is. Raises ConfigError for one that cannot hold the log, and
    redis.RedisError where it does not answer."""
    _check_mode(_info(client, "server"))
    policy = _configured_policy(client)
    if policy is None and not assume_noeviction:
        raise ConfigError(
            "this Redis does not let us read maxmemory-policy (CONFIG is forbidden); make sure "
            "that it is noeviction and say --assume-noeviction"
        )
    policy = policy or _info(client, "memory").get("maxmemory_policy", NOEVICTION)
    if policy != NOEVICTION:
        raise ConfigError(
            f"this Redis has maxmemory-policy {policy}, which drops whole trajectory streams at "
            "random; run: redis-cli CONFIG SET maxmemory-policy noeviction (and put it into "
            "redis.conf), or use another server; the log trims itself"
        )


def _check_mode(info: dict[str, Any]) -> None:
    mode = str(info.get("redis_mode", "standalone"))
    if mode != "standalone":
        raise ConfigError(
            f"Redis {mode.capitalize()} is not supported; give the URL of a single server"
        )
    numbers = re.findall(r"\d+", str(info.get("redis_version", "")))
    version = tuple(map(int, numbers[:2]))
    if version and version < MIN_VERSION:
        raise ConfigError(
            f"Redis {info['redis_version']} is too old for the trajectory log; 6.2 or newer is "
            "needed"
        )


def _info(client: redis.Redis, section: str) -> dict[str, Any]:
    """Empty where INFO is forbidden."""
    try:
        return dict(client.info(section))
    except redis.ResponseError:
        return {}


def _configured_policy(client: redis.Redis) -> str | None:
    try:
        return dict(client.config_get("maxmemory-policy")).get("maxmemory-policy")
    except redis.ResponseError:
        return None
