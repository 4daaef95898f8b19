"""How an engine is set up, and the one list of environment variables."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from whiflash.core.errors import ConfigError
from whiflash.core.places import check_host, check_store, is_loopback
from whiflash.core.rows import NONE
from whiflash.core.wording import explain

ENVIRONMENT: Final[Mapping[str, str]] = {
    "WHIFLASH_API_KEY": "the one key of a server that has no key file",
    "WHIFLASH_CACHE": "folder for converted models and measured costs (default: the user's cache)",
    "WHIFLASH_DATA": "folder of what is kept: trajectories (default: the user's data folder)",
    "WHIFLASH_STORE_KEYS": "secrets of namespaces, ID:SECRET, current one first; Redis needs it",
    "WHIFLASH_THREADS": "CPU threads of the target (default: the physical cores)",
    "WHIFLASH_TRACEBACK": "1 prints the traceback above the one-line error",
    "WHIFLASH_TEST_ALL": "tests: 1 turns every skip but `gpu` into a failure",
}
"""Every variable that WhiFlash itself reads. Libraries below it (HF_HUB_OFFLINE, OMP_NUM_THREADS,
CUDA_VISIBLE_DEVICES, ...) keep their own."""

_UNIT_BYTES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12,
               "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}  # fmt: skip
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?", re.IGNORECASE)


def read_environment(name: str) -> str | None:
    """Value of a listed variable; None where it is unset or empty. KeyError if not listed."""
    if name not in ENVIRONMENT:
        raise KeyError(name)
    return os.environ.get(name) or None


def parse_bytes(value: object) -> object:
    """ "4GiB", "500 MB", "1.5g" or a count of bytes, as bytes. None stays None."""
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise ValueError(f"{value!r} is no size; write 4GiB, 500MB or a count of bytes")
    return int(float(match[1]) * _UNIT_BYTES[(match[2] or "").lower()])


def _as_tuple(value: object) -> object:
    return (value,) if isinstance(value, str) else value


SERVER_TABLE: Final = "server"
Bytes = Annotated[int, BeforeValidator(parse_bytes)]
DType = Literal["auto", "float32", "bfloat16", "float64"]


class EngineConfig(BaseModel):
    """Everything that an engine is built from. Frozen; wrong values never get past construction
    through `load` or `of`, which raise ConfigError in one line."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = Field(
        "smollm2-135m",
        min_length=1,
        description="built-in name, local folder, GGUF file or hub name",
    )
    device: str = Field("cpu", pattern=r"^(cpu|cuda(:\d+)?)$", description="cpu, cuda or cuda:N")
    dtype: DType = Field("auto", description="auto measures and picks the fastest")
    drafters: Annotated[tuple[str, ...], BeforeValidator(_as_tuple)] = Field(
        ("retrieval",),
        max_length=4,
        description="arms beside `none`: retrieval, eagle3, dflash, ddtree, with :FOLDER if none "
        'is shipped and ,options; ("none",) or () for no drafting',
    )
    policy: str = Field("goodput", min_length=1, description="who chooses the arm of a round")
    memory: Bytes | None = Field(
        None,
        ge=2**20,
        description="bytes for KV caches and indexes; default what max_batch "
        "sequences of context_limit need, half of free memory at most",
    )
    context_limit: int | None = Field(
        None, ge=2, description="most tokens of prompt plus answer; default the model's own"
    )
    max_batch: int = Field(32, ge=1, description="sequences in one forward")
    max_queue: int = Field(256, ge=0, description="requests that may wait")
    prefill_chunk: int = Field(256, ge=1, description="prompt tokens per forward")
    max_draft_nodes: int = Field(16, ge=1, le=1024, description="draft nodes per row and round")
    max_draft_depth: int = Field(16, ge=1, le=256, description="depth of a draft")
    draft_window: int = Field(
        2048, ge=16, description="positions that a drafter absorbs at most when it falls behind"
    )
    round_log: Path | None = Field(None, description="zstd JSON-lines file of rounds")
    chat_template: Path | None = Field(None, description="Jinja file used instead of ours")
    plain_share: float = Field(0.01, ge=0, le=1, description="share of steps measured plain")
    store: str = Field(
        "memory",
        min_length=1,
        description="where trajectories are kept: memory, file (the user's data folder), a folder, "
        "or a redis://, rediss:// or unix:// URL",
    )
    store_max_age_s: float = Field(
        30 * 86_400.0, gt=0, description="seconds after which a stored turn is forgotten"
    )
    store_namespace_bytes: Bytes = Field(
        64 * 2**20, ge=2**16, description="most bytes of one namespace, the oldest go first"
    )
    store_bytes: Bytes = Field(512 * 2**20, ge=2**16, description="most bytes of a file store")
    redact: str = Field(
        "",
        pattern=r"^([A-Za-z_][\w.]*:[A-Za-z_]\w*)?$",
        description="MODULE:FUNCTION that finds more to keep out of the store than common secret "
        "shapes: it gets a text and returns character ranges",
    )
    assume_noeviction: bool = Field(
        False, description="trust that a Redis that hides its maxmemory-policy has noeviction"
    )

    @model_validator(mode="after")
    def _check_pairs(self) -> Self:
        if len(set(self.drafters)) != len(self.drafters):
            raise ValueError(f"drafters names one arm twice: {', '.join(self.drafters)}")
        if NONE in self.drafters and len(self.drafters) > 1:
            raise ValueError(
                f"drafters {NONE!r} turns drafting off and excludes the other drafters "
                f"({', '.join(d for d in self.drafters if d != NONE)}); name one or the other"
            )
        given = self.model_fields_set
        if {"max_draft_depth", "max_draft_nodes"} <= given and (
            self.max_draft_depth > self.max_draft_nodes
        ):
            raise ValueError(
                f"max_draft_depth {self.max_draft_depth} exceeds max_draft_nodes "
                f"{self.max_draft_nodes}; a chain of that depth cannot fit"
            )
        if self.context_limit is not None and self.context_limit < self.max_draft_nodes + 1:
            raise ValueError(
                f"context_limit {self.context_limit} leaves no room for max_draft_nodes "
                f"{self.max_draft_nodes}; raise the first or lower the second"
            )
        if self.chat_template is not None and not self.chat_template.is_file():
            raise ValueError(f"chat_template {self.chat_template} is no file")
        check_store(self.store)
        return self

    @property
    def arms(self) -> tuple[str, ...]:
        """Drafters as they were named, without `none`."""
        return tuple(name for name in self.drafters if name != NONE)

    @classmethod
    def of(cls, **fields: Any) -> Self:
        """A config from keyword values; ConfigError in one line where one is wrong."""
        try:
            return cls(**fields)
        except ValidationError as error:
            raise ConfigError(explain(error.errors(include_url=False), cls)) from None

    @classmethod
    def load(cls, path: Path | str, **overrides: Any) -> Self:
        """Reads a TOML (`.toml`) or JSON (`.json`) file; `overrides` win over it. Its table
        `server` belongs to ServerConfig."""
        file = Path(path)
        try:
            table = _read_table(file)
            table.pop(SERVER_TABLE, None)
            return cls.of(**{**table, **overrides})
        except ConfigError as error:
            raise ConfigError(f"config {file}: {error}") from None


Port = Annotated[int, Field(ge=0, le=65535)]


class ServerConfig(BaseModel):
    """How `whiflash serve` listens and whom it serves. Frozen, checked as EngineConfig is."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", min_length=1, description="address; public ones need keys")
    http_port: Port = Field(8000, description="OpenAI HTTP; 0 takes a free one")
    grpc_port: Port = Field(9000, description="gRPC; 0 takes a free one")
    served_name: str = Field("", description="what clients call the model; default its own name")
    keys: Path | None = Field(None, description="TOML file of API keys (`whiflash keys`)")
    max_waiting: int = Field(256, ge=1, description="calls that may wait")
    max_tenant_waiting: int = Field(128, ge=1, description="calls of one tenant that may wait")
    queued_s: float = Field(5.0, gt=0, description="seconds between signs of life in the queue")
    drain_s: float = Field(30.0, ge=0, description="seconds that open calls get at the end")
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    tracing: Literal["off", "otel"] = Field("off", description="otel sends spans by OTLP")

    @model_validator(mode="after")
    def _check_pairs(self) -> Self:
        if self.http_port == self.grpc_port != 0:
            raise ValueError(
                f"http_port and grpc_port are both {self.http_port}; they need one each"
            )
        check_host(self.host)
        return self

    @property
    def is_public(self) -> bool:
        """Others than this machine can reach it."""
        return not is_loopback(self.host)

    @classmethod
    def of(cls, **fields: Any) -> Self:
        """From keyword values; ConfigError in one line where one is wrong."""
        try:
            return cls(**fields)
        except ValidationError as error:
            raise ConfigError(explain(error.errors(include_url=False), cls)) from None

    @classmethod
    def load(cls, path: Path | str, **overrides: Any) -> Self:
        """The table `server` of an engine's configuration file; `overrides` win over it."""
        file = Path(path)
        try:
            table = _read_table(file).get(SERVER_TABLE, {})
            if not isinstance(table, dict):
                raise ConfigError(f"{SERVER_TABLE} must be a table of options")
            return cls.of(**{**table, **overrides})
        except ConfigError as error:
            raise ConfigError(f"config {file}: {error}") from None


def _read_table(file: Path) -> dict[str, Any]:
    if file.suffix not in (".toml", ".json"):
        raise ConfigError("name it .toml or .json")
    try:
        text = file.read_text(encoding="utf-8")
        table = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise ConfigError(f"cannot read it ({error.strerror})") from None
    except ValueError as error:
        raise ConfigError(f"broken {file.suffix[1:].upper()}: {error}") from None
    if not isinstance(table, dict):
        raise ConfigError("it must hold one table of options")
    return table
