"""A call whose path is no text ends grpcio's asyncio server; ours listens again."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any

import grpc
import pytest

from whiflash.client import AsyncClient, Piece
from whiflash.core.errors import ConfigError
from whiflash.rpc.access import Access
from whiflash.rpc.drafter_link import describe
from whiflash.rpc.faults import LinkLostError
from whiflash.rpc.kept_server import KeptServer
from whiflash.rpc.router_server import RouterServer
from whiflash.testing.backends import ScriptedBackend
from whiflash.testing.grpc_server import GrpcTestServer

BROKEN_PATH: Any = b"/whiflash.v1.Gener\xe8tionService/Generate"
OPTIONS: dict[str, Any] = {"max_tokens": 60, "ignore_eos": True, "temperature": 1.0, "seed": 4}


async def send_broken(target: str) -> None:
    """Raises AssertionError where it is answered."""
    async with grpc.aio.insecure_channel(target) as channel:
        call: Any = channel.unary_unary(BROKEN_PATH)
        try:
            await call(b"", timeout=5)
        except grpc.aio.AioRpcError:
            return
        raise AssertionError("it was answered")


async def written(target: str, prompt: str, breaks: bool = False) -> tuple[list[int], str]:
    """Ids and text; where it `breaks`, the broken call arrives behind the first piece."""
    ids: list[int] = []
    text = ""
    async with AsyncClient(target) as client:
        async for event in client.stream(prompt, **OPTIONS):
            if isinstance(event, Piece):
                if breaks and not ids:
                    await send_broken(target)
                ids.extend(event.token_ids)
                text += event.text
    return ids, text


def test_open_calls_go_on_behind_what_they_have(server: GrpcTestServer) -> None:
    whole = asyncio.run(written(server.target, "abc abc"))
    for number in range(2):
        assert asyncio.run(written(server.target, "abc abc", breaks=True)) == whole
        end_s = time.monotonic() + 10
        while server.server.num_revivals <= number:
            assert time.monotonic() < end_s, "it does not listen again"
            time.sleep(0.02)


def test_a_drain_still_ends_a_server_that_came_back() -> None:
    """Nothing is left that would come back once more."""
    with GrpcTestServer(ScriptedBackend("text")) as server:
        target = server.target
        asyncio.run(send_broken(target))
        asyncio.run(written(target, "a"))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.server.port), timeout=2)


def test_internal_servers_listen_again() -> None:
    async def scenario() -> None:
        server = RouterServer("static", "m")
        address = await server.start()
        await send_broken(address)
        async with asyncio.timeout(10):
            while not server.server.num_revivals:
                await asyncio.sleep(0.02)
        try:
            await describe(address, Access())
        except LinkLostError as error:
            assert "UNIMPLEMENTED" in str(error), "another server answers on its port"  # noqa: PT017
        assert server.address == address
        await server.stop()

    asyncio.run(scenario())


def test_one_that_cannot_be_made_anew_is_tried_again() -> None:
    """Another program has taken the port meanwhile, and leaves."""
    made: list[grpc.aio.Server] = []

    def make() -> grpc.aio.Server:
        if len(made) == 1:
            made.append(made[0])
            raise ConfigError("taken")
        server = grpc.aio.server()
        server.add_insecure_port("127.0.0.1:0")
        made.append(server)
        return server

    async def scenario() -> None:
        kept = KeptServer(make)
        await kept.start()
        await made[0].stop(0)
        async with asyncio.timeout(10):
            while not kept.num_revivals:
                await asyncio.sleep(0.02)
        await kept.stop(0)
        assert len(made) == 3

    asyncio.run(scenario())
