"""Calls against a scripted backend, without a network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from whiflash.serving.call import GenerationCall, TextPrompt
from whiflash.serving.caller import LOCAL_CALLER, CallContext, Caller, Scope


@pytest.fixture
def call() -> Callable[..., GenerationCall]:
    """`call(text, **fields)`: a call with a plain prompt."""

    def make(text: str = "a prompt", **fields: Any) -> GenerationCall:
        return GenerationCall(TextPrompt(text), **fields)

    return make


@pytest.fixture
def context() -> Callable[..., CallContext]:
    """`context(tenant, **fields)`: the circumstances of a call of that tenant."""

    def make(tenant: str = "", request_id: str = "r", **fields: Any) -> CallContext:
        caller = LOCAL_CALLER
        if tenant:
            caller = Caller(tenant, "default", frozenset({Scope.GENERATE}), f"key-{tenant}")
        return CallContext(caller, request_id, **fields)

    return make
