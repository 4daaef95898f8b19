"""The file of a learned router: the network of `neural`, the heads of `goodput`, or both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whiflash.core.errors import ConfigError
from whiflash.routing.heads import NUM_KNOTS, NUM_RANKS, HeadArm, SurvivalHeads, num_signals
from whiflash.routing.neural_router import NeuralRouter

if TYPE_CHECKING:
    import torch

FORMAT = "whiflash-router-2"
_NEURAL, _HEADS = "neural", "heads"
_HEAD_ARRAYS = ("hidden_weight", "hidden_mean", "signal_weight", "bias", "out_weight", "out_bias",
                "claim_weight", "claimed", "true")  # fmt: skip
Tensors = dict[str, "torch.Tensor"]
Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class RouterFile:
    """target: fingerprint of the target whose hidden state it was trained on.

    Layout: safetensors. Metadata: `format`, `target`, `neural` (JSON: positive, negative) and
    `heads` (JSON: arms, a list of HeadArm), either of them or both. Tensors: those of NeuralRouter
    behind `neural.`, those of SurvivalHeads behind `heads.`, in any float type; weights are written
    in bf16.
    """

    target: str
    neural: NeuralRouter | None = None
    heads: SurvivalHeads | None = None

    def write(self, path: Path) -> None:
        """Raises OSError."""
        import torch
        from safetensors.torch import save_file

        metadata = {"format": FORMAT, "target": self.target}
        tensors: Tensors = {}
        if self.neural is not None:
            names = {"positive": self.neural.positive, "negative": self.neural.negative}
            metadata[_NEURAL] = json.dumps(names)
            tensors |= {f"{_NEURAL}.{name}": t for name, t in self.neural.tensors.items()}
        if self.heads is not None:
            metadata[_HEADS] = json.dumps({"arms": [asdict(arm) for arm in self.heads.arms]})
            for name in _HEAD_ARRAYS:
                tensors[f"{_HEADS}.{name}"] = torch.from_numpy(getattr(self.heads, name).copy())
        save_file({name: _stored(name, t) for name, t in tensors.items()}, path, metadata)

    @classmethod
    def read(cls, path: Path) -> RouterFile:
        """Raises ConfigError unless the file holds exactly what it should."""
        metadata, tensors = _load(path)
        if metadata.get("format") != FORMAT:
            raise ConfigError(f"{path} is no {FORMAT} file (metadata `format`); train it again "
                              "with `whiflash train router`")  # fmt: skip
        if not metadata.get("target"):
            raise ConfigError(f"the router file {path} lacks metadata: target")
        parts = {name: _part(tensors, name) for name in (_NEURAL, _HEADS)}
        known = {name for name in parts if name in metadata}
        odd = sorted(t for t in tensors if t.partition(".")[0] not in known)
        if odd or not known:
            raise ConfigError(f"the router file {path} holds no part that its metadata names, or "
                              f"tensors of none: {', '.join(odd)}")  # fmt: skip
        tables = {name: _table(path, metadata[name], name) for name in known}
        neural = _neural(path, tables[_NEURAL], parts[_NEURAL]) if _NEURAL in known else None
        heads = _heads(path, tables[_HEADS], parts[_HEADS]) if _HEADS in known else None
        return cls(metadata["target"], neural, heads)


def as_stored(weight: torch.Tensor) -> torch.Tensor:
    """Float32 [...]: a weight as it is read back from a file."""
    import torch

    return weight.to(torch.bfloat16).float()


def _stored(name: str, tensor: torch.Tensor) -> torch.Tensor:
    import torch

    return tensor.to(torch.bfloat16) if name.endswith("weight") else tensor


def target_of(path: Path) -> str:
    """Fingerprint of the target that a router file belongs to, without its tensors. Raises
    ConfigError."""
    return _load(path, has_tensors=False)[0].get("target", "")


def _load(path: Path, has_tensors: bool = True) -> tuple[dict[str, str], Tensors]:
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise ConfigError(f"the router file {path} does not exist; check file=")
    try:
        with safe_open(path, "pt") as opened:
            metadata = dict(opened.metadata() or {})
            names = opened.keys() if has_tensors else ()
            return metadata, {name: opened.get_tensor(name).float() for name in names}
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"the router file {path} is no safetensors file ({error})") from None


def _part(tensors: Tensors, name: str) -> Tensors:
    return {key.partition(".")[2]: t for key, t in tensors.items() if key.startswith(f"{name}.")}


def _table(path: Path, text: str, name: str) -> dict[str, Any]:
    try:
        table = json.loads(text)
    except ValueError:
        table = None
    if not isinstance(table, dict):
        raise ConfigError(f"the router file {path}: metadata `{name}` is no table")
    return table


def _neural(path: Path, table: Mapping[str, Any], tensors: Tensors) -> NeuralRouter:
    missing = [key for key in ("positive", "negative") if not isinstance(table.get(key), str)]
    if missing:
        raise ConfigError(f"the router file {path} lacks metadata: {', '.join(missing)}")
    width, hidden = _sides(path, tensors, "fc1.weight")
    wanted: Shapes = {"fc1.weight": (width, hidden), "fc1.bias": (width,),
                      "fc2.weight": (1, width), "fc2.bias": (1,)}  # fmt: skip
    _check_tensors(path, tensors, wanted)
    return NeuralRouter(table["positive"], table["negative"], tensors)


def _heads(path: Path, table: Mapping[str, Any], tensors: Tensors) -> SurvivalHeads:
    try:
        arms = tuple(HeadArm(str(a["arm"]), bool(a["has_claims"]), int(a["max_nodes"]),
                             str(a.get("tree", ""))) for a in table["arms"])  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ConfigError(f"the router file {path}: metadata `heads` lists no arms") from None
    count = len(arms)
    if not count or len({arm.arm for arm in arms}) < count:
        raise ConfigError(f"the router file {path}: metadata `heads` lists no arm, or one twice")
    width, hidden = _sides(path, tensors, "hidden_weight")
    wanted: Shapes = {
        "hidden_weight": (width, hidden), "hidden_mean": (hidden,),
        "signal_weight": (width, num_signals(count)), "bias": (width,),
        "out_weight": (count * NUM_RANKS, width), "out_bias": (count * NUM_RANKS,),
        "claim_weight": (count, 2), "claimed": (count, NUM_KNOTS), "true": (count, NUM_KNOTS),
    }  # fmt: skip
    _check_tensors(path, tensors, wanted)
    return SurvivalHeads(arms, **{name: tensors[name].numpy() for name in _HEAD_ARRAYS})


def _sides(path: Path, tensors: Tensors, name: str) -> tuple[int, int]:
    """(rows, columns) of a matrix that must be there."""
    shape = tuple(tensors[name].shape) if name in tensors else ()
    if name in tensors and (len(shape) != 2 or min(shape) < 1):
        raise ConfigError(f"the router file {path}: {name} has shape {shape}, not two sides")
    return (shape[0], shape[1]) if shape else (1, 1)


def _check_tensors(path: Path, tensors: Tensors, wanted: Shapes) -> None:
    if set(tensors) != set(wanted):
        odd = ", ".join(sorted(set(tensors) ^ set(wanted)))
        raise ConfigError(f"the router file {path} lacks tensors or has too many: {odd}")
    for name, size in wanted.items():
        if tuple(tensors[name].shape) != size:
            raise ConfigError(f"the router file {path}: {name} has shape "
                              f"{tuple(tensors[name].shape)}, expected {size}")  # fmt: skip
        if not bool(tensors[name].isfinite().all()):
            raise ConfigError(f"the router file {path}: {name} holds values that are no numbers")
