"""TLS identities: what stands in the certificate, and real handshakes of clients that pin it."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from gridops.trust.tls import TlsIdentity, fingerprint, pinned_client_context, self_signed
from tests.trust.people import NOW

DAY = 86_400_000
IDENTITY = self_signed(["gpu-07.example", "10.0.0.7", "localhost"], NOW, 30)
OTHER = self_signed([], NOW, 30)


def server_context(identity: TlsIdentity, directory: Path) -> ssl.SSLContext:
    (directory / "cert.pem").write_text(identity.cert_pem)
    (directory / "key.pem").write_bytes(identity.key_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "cert.pem", directory / "key.pem")
    return context


def handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> str | None:
    """Both ends in memory, no socket. The TLS version, or the client's error raised."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="controller"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(6):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ends[0].version()


def test_the_certificate_names_what_was_asked_and_this_machine() -> None:
    certificate = x509.load_pem_x509_certificate(IDENTITY.cert_pem.encode())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["gpu-07.example", "localhost"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.7", "127.0.0.1", "::1"]
    assert certificate.not_valid_before_utc.timestamp() * 1000 == NOW
    assert certificate.not_valid_after_utc.timestamp() * 1000 == NOW + 30 * DAY
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    private = load_pem_private_key(IDENTITY.key_pem, None)
    assert private.public_key() == certificate.public_key()


def test_an_identity_does_not_print_its_key() -> None:
    assert "PRIVATE" not in repr(IDENTITY)
    assert IDENTITY.key_pem != OTHER.key_pem


def test_the_fingerprint_is_the_one_of_the_ssl_module() -> None:
    der = ssl.PEM_cert_to_DER_cert(IDENTITY.cert_pem)
    assert fingerprint(IDENTITY.cert_pem) == hashlib.sha256(der).hexdigest()
    with pytest.raises(ValueError, match=r"PEM|cert"):
        fingerprint("hello")


def test_a_pinned_certificate_is_accepted_whatever_its_name_and_date(tmp_path: Path) -> None:
    server = server_context(IDENTITY, tmp_path)
    assert handshake(server, pinned_client_context([IDENTITY.cert_pem])) == "TLSv1.3"
    assert handshake(server, pinned_client_context([OTHER.cert_pem, IDENTITY.cert_pem])) == "TLSv1.3"
    past = self_signed(["x"], DAY, 1)
    assert handshake(server_context(past, tmp_path), pinned_client_context([past.cert_pem])) == "TLSv1.3"


def test_another_certificate_of_the_same_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server_context(OTHER, tmp_path), pinned_client_context([IDENTITY.cert_pem]))


def test_older_tls_is_refused(tmp_path: Path) -> None:
    server = server_context(IDENTITY, tmp_path)
    server.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        handshake(server, pinned_client_context([IDENTITY.cert_pem]))


def test_a_client_must_pin_something() -> None:
    with pytest.raises(ValueError, match="no certificate to pin"):
        pinned_client_context([])
    with pytest.raises(ValueError, match=r"PEM|cert"):
        pinned_client_context(["hello"])


@asynccontextmanager
async def listener(identity: TlsIdentity, directory: Path) -> AsyncIterator[str]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=server_context(identity, directory))
    async with server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


async def test_the_clients_of_this_house_speak_to_the_pinned_certificate_only(tmp_path: Path) -> None:
    right, wrong = pinned_client_context([IDENTITY.cert_pem]), pinned_client_context([OTHER.cert_pem])
    async with listener(IDENTITY, tmp_path) as url:
        async with httpx.AsyncClient(verify=right, trust_env=False) as client:
            assert (await client.get(url)).text == "hi"
        async with httpx.AsyncClient(verify=wrong, trust_env=False) as client:
            with pytest.raises(httpx.ConnectError):
                await client.get(url)
        async with aiohttp.ClientSession() as session:
            async with session.get(url, ssl=right) as response:
                assert await response.text() == "hi"
            with pytest.raises(aiohttp.ClientSSLError):
                await session.get(url, ssl=wrong)
