"""Hosts of a verifier's drafters: what they load, in a process without the target."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import torch

from whiflash.config import EngineConfig
from whiflash.core.errors import ConfigError
from whiflash.core.protocols import Drafter
from whiflash.drafters.registry import DRAFTERS, DrafterParts, parse_specs
from whiflash.models.draft.target_parts import TargetParts
from whiflash.models.files import ModelFiles
from whiflash.models.shipped import shipped_folders
from whiflash.models.sources import resolve, resolve_drafter
from whiflash.models.tokenizer import HFTokenizer
from whiflash.rpc.access import Access
from whiflash.rpc.drafter_server import DrafterServer, HostedTarget
from whiflash.trajectories.index import TrajectoryIndexes
from whiflash.trajectories.memory_log import MemoryLog

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}
_NO_INDEX_BYTES = 1 << 20


def drafter_host(
    config: EngineConfig,
    kind: str,
    dtype: str,
    max_bytes: int,
    host: str = "127.0.0.1",
    access: Access | None = None,
    port: int = 0,
) -> DrafterServer:
    """The drafter that `config` names under `kind`, not started. Loads it, and blocks. Raises
    ConfigError or ModelError."""
    files = ModelFiles.at(resolve(config.model))
    if files.gguf_name is not None:
        raise ConfigError(
            f"a drafter in a process of its own reads the target's embedding from a checkpoint "
            f"folder, and {config.model} is a GGUF file; leave {kind} out of [cluster.drafters]"
        )
    tokenizer = HFTokenizer.load(files.folder).fingerprint
    target = HostedTarget(files.fingerprint(), tokenizer)
    make = _maker(config, kind, _DTYPES[dtype], files, tokenizer)
    return DrafterServer(make, target, host, port, max_bytes, access)


def _maker(
    config: EngineConfig, kind: str, dtype: torch.dtype, files: ModelFiles, tokenizer: str
) -> Callable[[], Drafter]:
    [spec] = [spec for spec in parse_specs(config.arms) if spec.kind == kind]

    def make() -> Drafter:
        device = torch.device(config.device)
        parts = TargetParts.of_folder(files.folder, dtype, device, config.context_limit, tokenizer)
        with closing(TrajectoryIndexes(MemoryLog(), _NO_INDEX_BYTES)) as nothing:
            shipped = shipped_folders(files.fingerprint())
            return DRAFTERS.build(spec, DrafterParts(nothing, parts, resolve_drafter, shipped))

    return make
