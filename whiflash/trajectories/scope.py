"""Whose trajectories are whose. The only place where namespaces are made.

A namespace names an owner (tenant, project, end user) and a tokenizer without telling who it is:

    KEY.TENANT.PROJECT.USER.TOKENIZER

KEY is the id of the secret; TENANT, PROJECT and USER are HMAC-SHA256 under that secret, each over
all that stands above it, so that what belongs to one tenant can be found again for deletion.
Under another secret all of them are others. Nothing is read across two namespaces.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

DEFAULT_TENANT = "local"
DEFAULT_PROJECT = "default"
_SHORT_HEX, _LONG_HEX = 16, 32
_NUM_PARTS = 5


@dataclass(frozen=True, slots=True)
class Owner:
    """Whom trajectories belong to. Whatever a call says may fill `subject` alone; tenant and
    project come from its credentials."""

    tenant: str = DEFAULT_TENANT
    project: str = DEFAULT_PROJECT
    subject: str = ""

    @property
    def name(self) -> str:
        """A plain name, different for different owners: what requests carry. The library's
        default `local` is the owner of a server without keys."""
        is_plain = self.project == DEFAULT_PROJECT and not self.subject
        if is_plain and self.tenant and not self.tenant.startswith("["):
            return self.tenant
        return json.dumps([self.tenant, self.project, self.subject])

    @classmethod
    def named(cls, name: str) -> Owner:
        """The owner of a plain name. A name that none of ours begins like is a tenant's."""
        if name.startswith("["):
            try:
                tenant, project, subject = json.loads(name)
                return cls(str(tenant), str(project), str(subject))
            except ValueError:
                pass
        return cls(name)


OwnerOf = Callable[[str], Owner]
"""Whose a turn is that names this end user ("" where it names none)."""


@dataclass(frozen=True, slots=True)
class ScopeKey:
    """A secret under its public id."""

    key_id: str
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Selection:
    """Namespaces of a tenant, or of one of its projects, or of one end user there (None: all of
    them), of any tokenizer and under any known secret. Raises ValueError on an end user without
    a project: that would be the whole tenant."""

    tenant: str
    project: str | None = None
    subject: str | None = None

    def __post_init__(self) -> None:
        if self.subject is not None and self.project is None:
            raise ValueError("an end user is selected within a project")


class Scopes:
    """Makes the namespaces of one tokenizer. `keys`: the current secret first; the older ones
    are known for deletion and export alone. Without a tokenizer it only selects."""

    def __init__(self, keys: Sequence[ScopeKey], tokenizer: str = "") -> None:
        if not keys:
            raise ValueError("namespaces need a secret")
        self._keys = tuple(keys)
        self._tokenizer = tokenizer

    @property
    def can_name(self) -> bool:
        return bool(self._tokenizer)

    @property
    def tokenizer(self) -> str:
        """Its fingerprint, "" if none was named."""
        return self._tokenizer

    @property
    def key_id(self) -> str:
        """Of the secret that namespaces are made with."""
        return self._keys[0].key_id

    def namespace(self, owner: Owner) -> str:
        """Under the current secret. Raises ValueError without a tenant or a tokenizer."""
        if not owner.tenant or not self._tokenizer:
            raise ValueError("a namespace needs a tenant and a tokenizer")
        parts = [self.key_id, *_tags(self._keys[0], owner), self._tokenizer]
        return ".".join(parts)

    def selects(self, selection: Selection, namespace: str) -> bool:
        """Whether a namespace, of whichever tokenizer, is part of the selection."""
        parts = namespace.split(".")
        key = next((key for key in self._keys if key.key_id == parts[0]), None)
        if key is None or len(parts) != _NUM_PARTS:
            return False
        project, subject = selection.project, selection.subject
        wanted = _tags(key, Owner(selection.tenant, project or "", subject or ""))
        depth = 1 if project is None else 2 if subject is None else 3
        return all(map(hmac.compare_digest, wanted[:depth], parts[1:]))


def _tags(key: ScopeKey, owner: Owner) -> tuple[str, str, str]:
    names = (owner.tenant, owner.project, owner.subject)
    tags = [_tag(key, names[:depth]) for depth in (1, 2, 3)]
    return tags[0][:_SHORT_HEX], tags[1][:_SHORT_HEX], tags[2][:_LONG_HEX]


def _tag(key: ScopeKey, names: tuple[str, ...]) -> str:
    return hmac.new(key.secret, json.dumps(names).encode(), hashlib.sha256).hexdigest()
