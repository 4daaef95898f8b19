"""ModelService of the public API."""

from __future__ import annotations

import json

from whiflash.api.v1 import model_service_pb2 as pb
from whiflash.core.params import MAX_LOGPROBS, MAX_STOP_STRINGS
from whiflash.serving.auth import require
from whiflash.serving.caller import CallContext, Scope
from whiflash.serving.generation import GenerationService

MAX_CHOICES = 128


class ModelServicer:
    """The methods of the service, by their names in the proto. They raise WhiFlashError."""

    def __init__(self, service: GenerationService, max_request_bytes: int) -> None:
        self._service = service
        self._max_request_bytes = max_request_bytes

    async def GetPlan(self, request: pb.GetPlanRequest, call: CallContext) -> pb.GetPlanResponse:
        """It names folders of the machine and counts by arm, so it is for administrators."""
        require(call.caller, Scope.ADMIN)
        return pb.GetPlanResponse(plan_json=json.dumps(self._service.plan()))

    async def ListArms(self, request: pb.ListArmsRequest, call: CallContext) -> pb.ListArmsResponse:
        """`none` first."""
        return pb.ListArmsResponse(arms=[pb.Arm(name=name) for name in self._service.model.arms])

    async def GetLimits(
        self, request: pb.GetLimitsRequest, call: CallContext
    ) -> pb.GetLimitsResponse:
        """What a client may ask for."""
        model = self._service.model
        return pb.GetLimitsResponse(
            model=model.name,
            model_fingerprint=model.fingerprint,
            created_s=model.created_s,
            max_context_tokens=model.context_limit,
            vocab_size=model.vocab_size,
            max_choices=MAX_CHOICES,
            max_logprobs=MAX_LOGPROBS,
            max_stop_strings=MAX_STOP_STRINGS,
            max_request_bytes=self._max_request_bytes,
        )

    async def GetLoad(self, request: pb.GetLoadRequest, call: CallContext) -> pb.GetLoadResponse:
        """A snapshot."""
        load = self._service.load()
        return pb.GetLoadResponse(
            is_ready=self._service.is_ready,
            num_running=load.running,
            num_waiting=load.waiting,
            kv_bytes=load.kv_bytes,
            max_kv_bytes=load.kv_limit_bytes,
            tokens_per_s=load.tokens_per_s,
        )
