"""The files of one model: config, weight tensors (counted without reading them), fingerprint."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whiflash.core.errors import ModelError

_SAMPLES_PER_FILE = 16
_SAMPLE_BYTES = 4096
_NOT_OF_THE_MODEL = ("_name_or_path", "transformers_version", "_commit_hash")


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model folder, read as safetensors or, if `gguf_name` is set, from that GGUF file."""

    folder: Path
    gguf_name: str | None = None

    @classmethod
    def at(cls, path: Path) -> ModelFiles:
        """The files below a folder or of a .gguf file. Raises ModelError without weights."""
        if path.is_file():
            return cls(path.parent, path.name)
        if (path / "adapter_config.json").is_file() or any(path.glob("*.safetensors")):
            return cls(path)
        ggufs = sorted(file.name for file in path.glob("*.gguf"))
        if len(ggufs) == 1:
            return cls(path, ggufs[0])
        if ggufs:
            raise ModelError(f"{path} holds {len(ggufs)} GGUF files; name one: {', '.join(ggufs)}")
        raise ModelError(f"{path} has no .safetensors and no .gguf weights; save it as safetensors")

    @property
    def read_options(self) -> dict[str, str]:
        """Keyword arguments that make transformers read these files."""
        return {"gguf_file": self.gguf_name} if self.gguf_name else {}

    @property
    def weight_files(self) -> list[Path]:
        if self.gguf_name:
            return [self.folder / self.gguf_name]
        return sorted(self.folder.glob("*.safetensors"))

    def config_table(self) -> dict[str, Any]:
        """config.json as it is; empty for GGUF. Raises ModelError if it is missing or broken."""
        if self.gguf_name:
            return {}
        try:
            table = json.loads((self.folder / "config.json").read_text(encoding="utf-8"))
        except OSError as error:
            raise ModelError(f"{self.folder} has no readable config.json") from error
        except ValueError as error:
            raise ModelError(f"{self.folder / 'config.json'} is not valid JSON") from error
        if not isinstance(table, dict):
            raise ModelError(f"{self.folder / 'config.json'} must hold one JSON object")
        return table

    def num_parameters(self) -> int:
        """Numbers stored in the weight tensors. Raises ModelError on a damaged file."""
        if self.gguf_name:
            return sum(_gguf_sizes(self.weight_files[0]))
        return sum(
            math.prod(entry["shape"])
            for path in self.weight_files
            for name, entry in _header(path).items()
            if name != "__metadata__"
        )

    def fingerprint(self) -> str:
        """16 hex digits over config, tensor layout, file sizes and samples of the data: cheap, and
        two fine-tunes of one model differ in it."""
        table = self.config_table()
        config = {key: value for key, value in table.items() if key not in _NOT_OF_THE_MODEL}
        digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
        for path in self.weight_files:
            digest.update(f"{path.name} {path.stat().st_size}".encode())
            for sample in _samples(path):
                digest.update(sample)
        return digest.hexdigest()[:16]


def _samples(path: Path) -> Iterator[bytes]:
    size = path.stat().st_size
    with path.open("rb") as file:
        if path.suffix == ".safetensors":
            yield _header_bytes(path)
        for index in range(_SAMPLES_PER_FILE):
            file.seek(index * max(size - _SAMPLE_BYTES, 0) // (_SAMPLES_PER_FILE - 1))
            yield file.read(_SAMPLE_BYTES)


def _header_bytes(path: Path) -> bytes:
    """The JSON header of a safetensors file: 8 bytes of length, little endian, in front."""
    with path.open("rb") as file:
        prefix = file.read(8)
        size = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
        if not 2 <= size <= path.stat().st_size - 8:
            raise ModelError(f"{path} is damaged: no safetensors header; fetch it again")
        return file.read(size)


def _header(path: Path) -> dict[str, Any]:
    try:
        header = json.loads(_header_bytes(path))
        data_bytes = max(
            (entry["data_offsets"][1] for key, entry in header.items() if key != "__metadata__"),
            default=0,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{path} is damaged: bad safetensors header; fetch it again") from error
    if path.stat().st_size < 8 + len(_header_bytes(path)) + data_bytes:
        raise ModelError(f"{path} is cut short; fetch it again")
    return dict(header)


def _gguf_sizes(path: Path) -> Iterator[int]:
    from gguf import GGUFReader

    try:
        reader = GGUFReader(path)
    except (ValueError, OSError, IndexError) as error:
        raise ModelError(f"{path} is no readable GGUF file ({error})") from error
    return (int(tensor.n_elements) for tensor in reader.tensors)
