"""What a verifier says of itself, as records; what two ends must share to work together."""

from __future__ import annotations

from dataclasses import dataclass

from whiflash.rpc.v1 import verifier_service_pb2 as pb
from whiflash.serving.backend import Load, ServedModel


@dataclass(frozen=True, slots=True)
class Identity:
    """An answer begun by one verifier goes on at another one of equal identity, and no other."""

    version: str
    model: str
    tokenizer: str

    def differences(self, other: Identity) -> str:
        """In words, "" where there is none. `other` is whom it is compared with."""
        named = {
            "version": (self.version, other.version),
            "model fingerprint": (self.model, other.model),
            "tokenizer fingerprint": (self.tokenizer, other.tokenizer),
        }
        return ", ".join(
            f"{name} {mine} instead of {theirs}"
            for name, (mine, theirs) in named.items()
            if mine != theirs
        )

    def message(self) -> pb.VerifierIdentity:
        return pb.VerifierIdentity(
            version=self.version,
            model_fingerprint=self.model,
            tokenizer_fingerprint=self.tokenizer,
        )

    @classmethod
    def read(cls, message: pb.VerifierIdentity) -> Identity:
        return cls(message.version, message.model_fingerprint, message.tokenizer_fingerprint)


@dataclass(frozen=True, slots=True)
class Description:
    """incarnation: another one after every start."""

    identity: Identity
    incarnation: str
    model: ServedModel

    def message(self) -> pb.DescribeResponse:
        model = self.model
        return pb.DescribeResponse(
            identity=self.identity.message(),
            incarnation=self.incarnation,
            model=model.name,
            context_limit=model.context_limit,
            vocab_size=model.vocab_size,
            arms=model.arms,
            created_s=model.created_s,
            slots=model.slots,
            kv_tokens=model.kv_tokens,
            eos_ids=model.eos_ids,
            has_constraints=model.has_constraints,
        )

    @classmethod
    def read(cls, message: pb.DescribeResponse) -> Description:
        identity = Identity.read(message.identity)
        model = ServedModel(
            name=message.model,
            fingerprint=identity.model,
            context_limit=message.context_limit,
            vocab_size=message.vocab_size,
            arms=tuple(message.arms),
            created_s=message.created_s,
            slots=message.slots,
            kv_tokens=message.kv_tokens,
            eos_ids=tuple(message.eos_ids),
            has_constraints=message.has_constraints,
        )
        return cls(identity, message.incarnation, model)


@dataclass(frozen=True, slots=True)
class VerifierState:
    """A sign of life."""

    is_ready: bool
    is_draining: bool
    load: Load

    def message(self) -> pb.WatchResponse:
        load = self.load
        return pb.WatchResponse(
            is_ready=self.is_ready,
            is_draining=self.is_draining,
            load=pb.VerifierLoad(
                running=load.running,
                waiting=load.waiting,
                kv_bytes=load.kv_bytes,
                kv_limit_bytes=load.kv_limit_bytes,
                tokens_per_s=load.tokens_per_s,
            ),
        )

    @classmethod
    def read(cls, message: pb.WatchResponse) -> VerifierState:
        load = message.load
        return cls(
            message.is_ready,
            message.is_draining,
            Load(load.running, load.waiting, load.kv_bytes, load.kv_limit_bytes, load.tokens_per_s),
        )
