"""Token, TLS, address rules and metrics of our own servers."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from whiflash.core.errors import ConfigError, UnauthenticatedError
from whiflash.rpc.access import Access, TlsFiles
from whiflash.rpc.drafter_link import describe
from whiflash.rpc.faults import LinkLostError
from whiflash.rpc.loop import RpcLoop
from whiflash.rpc.router_server import RouterServer
from whiflash.rpc.rpc_metrics import RpcMetrics
from whiflash.testing.hosts import ThreadHost

World = Any
TOKEN = "a token of more than sixteen"


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsFiles]:
    """One self-signed certificate that is authority, server and client."""
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "whiflash-test")])
    now = dt.datetime.now(dt.UTC)
    alternatives = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(certificate.public_bytes(pem))
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "key.pem").write_bytes(key.private_bytes(pem, *plain))
    return TlsFiles(folder / "cert.pem", folder / "cert.pem", folder / "key.pem")


def test_calls_without_the_token_are_refused(world: World, loop: RpcLoop) -> None:
    metrics = RpcMetrics()
    server = world.server("dflash", access=Access(TOKEN), metrics=metrics)
    with ThreadHost(server) as host:
        answer = loop.run(describe(host.address, Access(TOKEN)))
        assert answer.name == "dflash"
        for wrong in (Access(), Access(TOKEN + "!")):
            with pytest.raises(UnauthenticatedError, match="token"):
                loop.run(describe(host.address, wrong))
        with grpc.insecure_channel(host.address) as channel:
            from grpc_health.v1 import health_pb2, health_pb2_grpc

            check = health_pb2_grpc.HealthStub(channel).Check
            assert check(health_pb2.HealthCheckRequest(), timeout=5).status == 1
    text = metrics.registry.get_sample_value
    labels = {"method": "DrafterService/DescribeDrafter"}
    assert text("whiflash_rpc_calls_total", {**labels, "code": "ok"}) == 1
    assert text("whiflash_rpc_calls_total", {**labels, "code": "unauthenticated"}) == 2
    assert metrics.num_open("DrafterService/DescribeDrafter") == 0


def test_mutual_tls(world: World, loop: RpcLoop, tls: TlsFiles) -> None:
    """With it the call passes; without a certificate of its own a client gets nothing."""
    with ThreadHost(world.server("dflash", access=Access(tls=tls))) as host:
        assert loop.run(describe(host.address, Access(tls=tls))).name == "dflash"
        for stranger in (Access(), Access(tls=TlsFiles(ca=tls.ca))):
            with pytest.raises(LinkLostError):
                loop.run(describe(host.address, stranger))


def test_an_open_address_needs_a_token_or_client_certificates(loop: RpcLoop) -> None:
    async def start() -> None:
        await RouterServer("static", "m", host="0.0.0.0").start()

    with pytest.raises(ConfigError, match="internal token"):
        loop.run(start())


def test_a_taken_port_is_told(world: World, loop: RpcLoop) -> None:
    with ThreadHost(lambda: RouterServer("static", "m")) as host:
        port = int(host.address.rpartition(":")[2])

        async def start() -> None:
            await RouterServer("static", "m", port=port).start()

        with pytest.raises(ConfigError, match="taken"):
            loop.run(start())


def test_files_that_are_not_there_are_named() -> None:
    with pytest.raises(ConfigError, match="belong together"):
        TlsFiles(certificate=Path("x"))
    with pytest.raises(ConfigError, match="cannot read nowhere"):
        TlsFiles(certificate=Path("nowhere"), key=Path("nowhere")).server_credentials()
