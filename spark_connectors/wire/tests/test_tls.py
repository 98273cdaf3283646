"""The handshake of a client on a connected socket, with a server in a thread."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from spark_connectors.wire.tls import TlsSettings, secured
from spark_connectors.wire.transport import is_lasting
from testkit.certificates import HOST, Authority, pem_of

if TYPE_CHECKING:
    from spark_connectors.wire.transport import Stream

WITHIN_S = 10.0


def connected(authority: Authority, settings: TlsSettings, host: str = HOST, *, asks: bool = False) -> bytes:
    """The answer of a server to "ask": the version of TLS, and the length of the client's certificate."""
    ours, theirs = socket.socketpair()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.key_file())
    if asks:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority.trust_file())

    def serve() -> None:
        theirs.settimeout(WITHIN_S)
        with suppress(OSError), context.wrap_socket(theirs, server_side=True) as stream:
            assert stream.recv(3) == b"ask"
            stream.sendall(f"{stream.version()} {len(stream.getpeercert(binary_form=True) or b'')}".encode())

    server = threading.Thread(target=serve)
    server.start()
    ours.settimeout(WITHIN_S)
    try:
        return answer_of(secured(ours, host, settings))
    finally:
        ours.close()
        server.join()


def answer_of(stream: Stream) -> bytes:
    buffer = bytearray(100)
    stream.sendall(bytearray(b"ask"))
    size_bytes = stream.recv_into(memoryview(buffer))
    stream.close()
    return bytes(buffer[:size_bytes])


def trusting(authority: Authority) -> TlsSettings:
    return TlsSettings(trusted_file=str(authority.trust_file()))


def test_trusted_certificates_in_a_file_and_in_a_text(authority: Authority) -> None:
    assert connected(authority, trusting(authority)) == b"TLSv1.3 0"
    assert connected(authority, TlsSettings(trusted_pem=authority.certificate.decode())) == b"TLSv1.3 0"


def test_versions(authority: Authority) -> None:
    settings = TlsSettings(trusted_file=str(authority.trust_file()), versions=frozenset({"TLSv1.2"}))
    assert connected(authority, settings) == b"TLSv1.2 0"


def test_a_certificate_of_the_client(authority: Authority) -> None:
    leaf = authority.issue("a@b.c")
    trusted, key = str(authority.trust_file()), authority.write("client.pem", pem_of(leaf))
    for settings in (
        TlsSettings(trusted_file=trusted, key_file=str(key)),
        TlsSettings(trusted_file=trusted, key_pem=pem_of(leaf).decode()),
    ):
        answer = connected(authority, settings, asks=True)
        assert answer.startswith(b"TLSv1.3 ")
        assert answer != b"TLSv1.3 0"


def test_another_host(authority: Authority) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch") as refused:
        connected(authority, trusting(authority), "elsewhere.test")
    assert is_lasting(refused.value)
    unchecked = TlsSettings(trusted_file=str(authority.trust_file()), checks_host=False)
    assert connected(authority, unchecked, "elsewhere.test") == b"TLSv1.3 0"


def test_the_authorities_of_the_system(authority: Authority) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        connected(authority, TlsSettings())


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("/no/such/file", "/no/such/file: No such file or directory"),
        ("empty.pem", "empty.pem has no"),
    ],
)
@pytest.mark.parametrize("field", ["trusted_file", "key_file"])
def test_files_that_cannot_be_used(authority: Authority, name: str, reason: str, field: str) -> None:
    authority.write("empty.pem", b"")
    with pytest.raises(OSError, match=reason):
        connected(authority, TlsSettings(**{field: str(authority.directory / name)}))  # type: ignore[arg-type]


def test_texts_that_cannot_be_used(authority: Authority) -> None:
    for settings, reason in (
        (TlsSettings(trusted_pem="x"), r"ssl\.truststore\.certificates has no certificate"),
        (TlsSettings(key_pem="x"), r"ssl\.keystore\.key has no key with its certificate"),
    ):
        with pytest.raises(OSError, match=reason):
            connected(authority, settings)
