"""A gateway: the front ends' service over whatever verifiers a directory names."""

from __future__ import annotations

import asyncio

from whiflash.chat.format import ChatFormat
from whiflash.config import EngineConfig, ServerConfig
from whiflash.core.errors import ConfigError, ModelError
from whiflash.models.files import ModelFiles
from whiflash.models.sources import resolve
from whiflash.models.tokenizer import HFTokenizer
from whiflash.rpc.access import Access
from whiflash.serving.auth import Authenticator
from whiflash.serving.generation import GenerationService, ServiceLimits
from whiflash.serving.remote.backend import MoveLimits, RemoteBackend, served_model
from whiflash.serving.remote.directory import Directory
from whiflash.serving.remote.metrics import ClusterCollector
from whiflash.serving.remote.pool import VerifierPool
from whiflash.serving.remote.store import SharedStore
from whiflash.serving.telemetry import Telemetry


class Gateway:
    """Everything of a gateway but its ports. For the event loop that calls `start`.

    max_verifiers: as many as there may ever be; bounds what is handed over to them at once.
    """

    def __init__(
        self,
        engine: EngineConfig,
        server: ServerConfig,
        directory: Directory,
        auth: Authenticator,
        telemetry: Telemetry | None = None,
        max_verifiers: int = 1,
        limits: MoveLimits | None = None,
        access: Access | None = None,
    ) -> None:
        self.pool = VerifierPool(directory, access)
        self._engine = engine
        self._server = server
        self._auth = auth
        self._telemetry = telemetry
        self._max_verifiers = max_verifiers
        self._limits = limits
        self._refresh: asyncio.Task[None] | None = None
        self._backend: RemoteBackend | None = None
        self._service: GenerationService | None = None
        self._store: SharedStore | None = None

    @property
    def backend(self) -> RemoteBackend:
        assert self._backend is not None, "start it first"
        return self._backend

    @property
    def service(self) -> GenerationService:
        assert self._service is not None, "start it first"
        return self._service

    @property
    def store(self) -> SharedStore:
        assert self._store is not None, "start it first"
        return self._store

    async def start(self, timeout_s: float) -> None:
        """Waits for the first verifier. Raises NoVerifierError, or ConfigError where it serves
        another tokenizer than the model that is configured here."""
        self.pool.open()
        tokenizer, chat, no_chat = await asyncio.to_thread(_read_model, self._engine)
        description = await self.pool.first(timeout_s)
        theirs = description.identity.tokenizer
        if theirs != tokenizer.fingerprint:
            raise ConfigError(
                f"the verifiers' tokenizer is {theirs}, that of {self._engine.model} is "
                f"{tokenizer.fingerprint}; give gateway and verifiers one configuration"
            )
        model = served_model(description.model, self._server.served_name, self._max_verifiers)
        self._backend = RemoteBackend(self.pool, model, tokenizer, chat, no_chat, self._limits)
        backend = self._backend
        self._store = await asyncio.to_thread(
            SharedStore, self._engine, tokenizer, lambda: backend.chat, model.eos_ids
        )
        self.pool.leases = self._store.leases
        await self._backend.refresh()
        self._refresh = asyncio.create_task(self._backend.keep_fresh())
        config = self._server
        limits = ServiceLimits(config.max_waiting, config.max_tenant_waiting, config.queued_s)
        self._service = GenerationService(self._backend, self._auth, limits, self._telemetry)
        registry = self._service.telemetry.metrics.registry
        registry.register(ClusterCollector(self.pool, self._backend))

    async def stop(self) -> None:
        """After the drain of the service. Idempotent."""
        if self._refresh is not None:
            self._refresh.cancel()
            await asyncio.wait([self._refresh])
            self._refresh = None
        await self.pool.close()
        if self._store is not None:
            await asyncio.to_thread(self._store.close)

    def check_integrity(self) -> None:
        self.service.check_integrity()
        self.backend.check_integrity()


def _read_model(config: EngineConfig) -> tuple[HFTokenizer, ChatFormat | None, str]:
    """Tokenizer and chat format, without the weights; why there is no chat format."""
    files = ModelFiles.at(resolve(config.model))
    tokenizer = HFTokenizer.load(files.folder, files.gguf_name)
    try:
        chat = ChatFormat.for_model(files.folder, config.model, config.chat_template)
        return tokenizer, chat, ""
    except ModelError as error:
        return tokenizer, None, str(error)
