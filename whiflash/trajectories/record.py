"""What one turn leaves in the store."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False)
class TrajectoryRecord:
    """Tokens that the target emitted in one turn and the client was given; never user text or
    tool output (facts: retrieval, section 3.2).

    namespace:     the scope in which they may be used; required.
    run_id:        the agent run that the turn belongs to, "" for none.
    tokens:        int32 [n], made read-only.
    segment:       number of the turn within its run.
    model_label:   which model wrote them. A label, not a scope: the same tokenizer will do.
    finish_reason: why the turn ended.
    subject:       whom the tokens are about, so that they can be deleted for that person.
    template_id:   which agent or prompt template the run came from.
    tokenizer:     fingerprint of the tokenizer that the ids belong to, "" where the namespace
                   says it already.
    part:          number of the stretch within the turn, where redaction cut secrets out.
    time_ms:       when the turn ended, Unix milliseconds; 0 means now.
    record_id:     64 bits that tell a copy from another record of the same tokens; 0 draws them.
                   An importer derives them from what it reads, so that it may run twice.
    Raises ValueError without a namespace, on tokens of another shape or on a negative number.
    """

    namespace: str
    run_id: str
    tokens: npt.NDArray[np.int32]
    segment: int = 0
    model_label: str = ""
    finish_reason: str = ""
    subject: str = ""
    template_id: str = ""
    tokenizer: str = ""
    part: int = 0
    time_ms: int = 0
    record_id: int = 0

    def __post_init__(self) -> None:
        require_namespace(self.namespace)
        tokens = np.array(self.tokens, np.int32)
        if tokens.ndim != 1:
            raise ValueError(f"trajectory tokens must be one row of ids, got shape {tokens.shape}")
        for name in ("segment", "part", "time_ms", "record_id"):
            if not 0 <= getattr(self, name) < 2**64:
                raise ValueError(f"{name} must be in [0, 2^64), got {getattr(self, name)}")
        tokens.flags.writeable = False
        object.__setattr__(self, "tokens", tokens)
        object.__setattr__(self, "time_ms", self.time_ms or now_ms())
        object.__setattr__(self, "record_id", self.record_id or secrets.randbits(64) | 1)

    @property
    def num_bytes(self) -> int:
        """Memory of the tokens."""
        return self.tokens.nbytes


def now_ms() -> int:
    """Unix time in milliseconds."""
    return time.time_ns() // 1_000_000


def require_namespace(namespace: str) -> None:
    """Raises ValueError where no namespace is named: nothing is shared by default."""
    if not namespace:
        raise ValueError("a namespace is required; trajectories are never shared across scopes")
