"""Certificates for tests of TLS, made by a certificate authority of the test."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING

import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

if TYPE_CHECKING:
    from pathlib import Path

HOST = "broker.test"


@dataclass
class Authority:
    """A certificate authority with the files that it writes into a directory."""

    directory: Path
    ca: trustme.CA = field(default_factory=trustme.CA)

    @property
    def certificate(self) -> bytes:
        return self.ca.cert_pem.bytes()

    def trust_file(self, name: str = "ca.pem") -> Path:
        return self.write(name, self.certificate)

    def issue(
        self, *hosts: str, common_name: str | None = None, unit: str = "Tests", expires: datetime | None = None
    ) -> trustme.LeafCert:
        names = hosts or (HOST,)
        return self.ca.issue_cert(*names, common_name=common_name, organization_unit_name=unit, not_after=expires)

    def key_file(self, leaf: trustme.LeafCert | None = None, name: str = "server.pem") -> Path:
        """A PEM file with a key and its certificates."""
        return self.write(name, pem_of(leaf or self.issue()))

    def pkcs12_file(self, password: bytes, leaf: trustme.LeafCert | None = None, name: str = "server.p12") -> Path:
        leaf = leaf or self.issue()
        key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
        chain = x509.load_pem_x509_certificates(pem_of(leaf))
        authority = x509.load_pem_x509_certificate(self.certificate)
        others = [authority, *chain[1:]]
        encryption = BestAvailableEncryption(password)
        return self.write(
            name,
            pkcs12.serialize_key_and_certificates(b"broker", key, chain[0], others, encryption),  # type: ignore[arg-type]
        )

    def pkcs12_trust_file(self, password: bytes, name: str = "trust.p12") -> Path:
        authority = x509.load_pem_x509_certificate(self.certificate)
        encryption = BestAvailableEncryption(password)
        return self.write(name, pkcs12.serialize_key_and_certificates(None, None, None, [authority], encryption))

    def client_context(self, leaf: trustme.LeafCert | None = None) -> ssl.SSLContext:
        """The context of a client that trusts the authority, and shows a certificate if it has one."""
        context = ssl.create_default_context(cadata=self.certificate.decode())
        if leaf is not None:
            leaf.configure_cert(context)
        return context

    def write(self, name: str, content: bytes) -> Path:
        """Write a file that its owner alone can read."""
        path = self.directory / name
        path.write_bytes(content)
        path.chmod(0o600)
        return path


@cache
def shared_ca() -> trustme.CA:
    """An authority for tests that need no other one: keys take time to make."""
    return trustme.CA()


def pem_of(leaf: trustme.LeafCert) -> bytes:
    """The key in PKCS 8, the only form that Java reads, and the certificates."""
    key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
    certificates = b"".join(one.bytes() for one in leaf.cert_chain_pems)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + certificates


def past() -> datetime:
    """A moment at which certificates have expired."""
    return datetime(2001, 1, 1, tzinfo=UTC)
