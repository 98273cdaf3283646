"""Contexts of OpenSSL for listeners and clients, from settings. Reads files; every error is a TlsRefused."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from kafkawire.security.tls.cipher_suites import chosen
from kafkawire.security.tls.settings import TLS_1_2, TLS_1_3, ClientAuth, TlsRefused, TlsSettings
from kafkawire.security.tls.stores import KeyStore, load_key_store, load_trust_store

_VERSIONS: Final = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}
_VERIFY_MODES: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


@dataclass(frozen=True, slots=True)
class LoadedTls:
    """A context of a listener, and facts about its certificate. Times are seconds since 1970."""

    context: ssl.SSLContext
    subject: str
    alternative_names: frozenset[str]
    expires_s: float


@contextmanager
def _refusals() -> Iterator[None]:
    """Make a TlsRefused of every error: OpenSSL, cryptography and the system have many, and a broker goes on."""
    try:
        yield
    except TlsRefused:
        raise
    except Exception as error:
        raise TlsRefused(f"the certificate cannot be used: {type(error).__name__}: {error}") from error


@_refusals()
def server_tls(settings: TlsSettings, now: datetime | None = None) -> LoadedTls:
    """Load the stores of a listener, and make a context of them. Raises TlsRefused."""
    store = load_key_store(settings.key_store, now)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 0  # of TLS 1.3, for which OpenSSL would keep sessions; those of TLS 1.2 are stateless
    _restrict(context, settings)
    _load_key(context, store)
    if settings.client_auth is not ClientAuth.NONE:
        trust(context, load_trust_store(settings.trust_store))
    context.verify_mode = _VERIFY_MODES[settings.client_auth]
    certificate = store.certificate
    return LoadedTls(
        context=context,
        subject=certificate.subject.rfc4514_string(),
        alternative_names=_alternative_names(certificate),
        expires_s=certificate.not_valid_after_utc.timestamp(),
    )


@_refusals()
def client_context(settings: TlsSettings, *, checks_host: bool) -> ssl.SSLContext:
    """The context of a client. Without a trust store it trusts the authorities of the system. Raises TlsRefused."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = checks_host
    _restrict(context, settings)
    if settings.trust_store.is_set:
        trust(context, load_trust_store(settings.trust_store))
    else:
        context.load_default_certs()
    if settings.key_store.is_set:
        _load_key(context, load_key_store(settings.key_store))
    return context


def trust(context: ssl.SSLContext, certificates: Sequence[x509.Certificate]) -> None:
    """Trust certificates, and all that they sign. As in Java, an intermediate one may be trusted by itself."""
    context.load_verify_locations(cadata=b"".join(one.public_bytes(Encoding.DER) for one in certificates))
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _restrict(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """Set protocols and suites."""
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    protocols = settings.protocols
    if settings.cipher_suites:
        names, protocols = chosen(settings.cipher_suites, protocols)
        if names:
            _set_ciphers(context, names)
    versions = [_VERSIONS[one] for one in protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)


def _set_ciphers(context: ssl.SSLContext, names: str) -> None:
    try:
        context.set_ciphers(names)
    except ssl.SSLError:
        raise TlsRefused(f"ssl.cipher.suites: this OpenSSL has none of {names}") from None
    missing = {*names.split(":")} - {one["name"] for one in context.get_ciphers()}
    if missing:
        raise TlsRefused(f"ssl.cipher.suites: this OpenSSL lacks {', '.join(sorted(missing))}")


def _load_key(context: ssl.SSLContext, store: KeyStore) -> None:
    """Give the key to OpenSSL, which takes it from files only: this file exists in memory."""
    if not hasattr(os, "memfd_create"):
        raise TlsRefused("TLS needs Linux, where a key reaches OpenSSL without a file on a disk")
    descriptor = os.memfd_create("key store")
    try:
        os.write(descriptor, store.pem())
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    except ssl.SSLError as error:
        raise TlsRefused(f"OpenSSL refuses the certificate: {error.reason or error}") from None
    finally:
        os.close(descriptor)


def _alternative_names(certificate: x509.Certificate) -> frozenset[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(str(one.value) for one in found.value)
