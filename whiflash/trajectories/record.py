"""What one turn leaves in the store."""

from __future__ import annotations

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
    segment:       number of the record within its run.
    model_label:   which model wrote them. A label, not a scope: the same tokenizer will do.
    finish_reason: why the turn ended.
    subject:       whom the tokens are about, so that they can be deleted for that person.
    template_id:   which agent or prompt template the run came from.
    Raises ValueError without a namespace or on tokens of another shape.
    """

    namespace: str
    run_id: str
    tokens: npt.NDArray[np.int32]
    segment: int = 0
    model_label: str = ""
    finish_reason: str = ""
    subject: str = ""
    template_id: str = ""

    def __post_init__(self) -> None:
        require_namespace(self.namespace)
        tokens = np.array(self.tokens, np.int32)
        if tokens.ndim != 1:
            raise ValueError(f"trajectory tokens must be one row of ids, got shape {tokens.shape}")
        tokens.flags.writeable = False
        object.__setattr__(self, "tokens", tokens)

    @property
    def num_bytes(self) -> int:
        """Memory of the tokens."""
        return self.tokens.nbytes


def require_namespace(namespace: str) -> None:
    """Raises ValueError where no namespace is named: nothing is shared by default."""
    if not namespace:
        raise ValueError("a namespace is required; trajectories are never shared across scopes")
