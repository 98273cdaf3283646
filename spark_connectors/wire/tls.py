"""TLS of a connection: its settings, and the handshake on a connected socket.

Files and texts are PEM, which Python reads without other packages. A file is read on the machine that connects: the
driver, and each executor.
"""

from __future__ import annotations

import os
import socket
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from spark_connectors.wire.transport import Stream

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True)
class TlsSettings:
    """Settings of TLS. Without trusted certificates, the authorities of the system count."""

    trusted_file: str | None = None
    trusted_pem: str | None = None
    key_file: str | None = None  # with the certificates of the client
    key_pem: str | None = field(default=None, repr=False)  # likewise
    key_password: str | None = field(default=None, repr=False)
    checks_host: bool = True
    versions: frozenset[str] = frozenset(VERSIONS)


def secured(stream: Stream, host: str, settings: TlsSettings) -> Stream:
    """Do the handshake on a connected socket, which is closed if it fails. Raises OSError, of which ssl.SSLError is
    one."""
    assert isinstance(stream, socket.socket)
    try:
        return _context(settings).wrap_socket(stream, server_hostname=host)
    except BaseException:
        stream.close()
        raise


def _context(settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.checks_host
    chosen = [VERSIONS[one] for one in settings.versions]
    context.minimum_version, context.maximum_version = min(chosen), max(chosen)
    if settings.trusted_file is not None or settings.trusted_pem is not None:
        _trust(context, settings)
    else:
        context.load_default_certs()
    if settings.key_file is not None:
        _load_key(context, settings.key_file, settings.key_file, settings.key_password)
    elif settings.key_pem is not None:
        _load_key_text(context, settings.key_pem, settings.key_password)
    return context


def _trust(context: ssl.SSLContext, settings: TlsSettings) -> None:
    try:
        context.load_verify_locations(settings.trusted_file, cadata=settings.trusted_pem)
    except ssl.SSLError:
        raise OSError(
            f"{settings.trusted_file or 'ssl.truststore.certificates'} has no certificate in PEM form"
        ) from None
    except OSError as error:
        raise OSError(f"{settings.trusted_file}: {error.strerror or error}") from None
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as in Java, an intermediate one may be trusted


def _load_key(context: ssl.SSLContext, path: str, name: str, password: str | None) -> None:
    try:
        # Without a password OpenSSL would ask for it at the terminal.
        context.load_cert_chain(path, password=password or "")
    except ssl.SSLError:
        raise OSError(f"{name} has no key with its certificate in PEM form, or ssl.key.password is wrong") from None
    except OSError as error:
        raise OSError(f"{name}: {error.strerror or error}") from None


def _load_key_text(context: ssl.SSLContext, text: str, password: str | None) -> None:
    """Give OpenSSL the text, which it takes from files only: this file exists in memory."""
    descriptor = os.memfd_create("key store")
    try:
        os.write(descriptor, text.encode())
        _load_key(context, f"/proc/self/fd/{descriptor}", "ssl.keystore.key", password)
    finally:
        os.close(descriptor)
