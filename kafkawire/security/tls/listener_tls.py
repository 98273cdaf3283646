"""TLS of a listener while the broker runs: its context is made again when its files change (KIP-226).

A connection keeps the context of its handshake. If a file cannot be used, or is for another server, the old context
stays. The methods may block; they are called in the crypto thread, except `current`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cryptography import x509

from kafkawire.security.tls.contexts import LoadedTls, server_tls
from kafkawire.security.tls.distinguished_names import java_name
from kafkawire.security.tls.mapping_rules import NoMatchingRule
from kafkawire.security.tls.settings import ClientRefused, TlsRefused, TlsSettings

PRINCIPAL_TYPE: Final = "User:"


class ListenerTls:
    """The current context of one listener. `now`: the clock of dates."""

    def __init__(self, settings: TlsSettings, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """Raises TlsRefused."""
        self._settings = settings
        self._now = now
        self._loaded = self._fingerprint()  # of the files as they were loaded
        self.current: LoadedTls = server_tls(settings, now())

    def reload(self) -> bool:
        """Load the stores again if a file has changed since it was loaded. Returns whether the context is another one.
        Raises TlsRefused for files that cannot be used; the next call tries them again."""
        found = self._fingerprint()
        if found == self._loaded:
            return False
        loaded = server_tls(self._settings, self._now())
        self._check_same_server(loaded)
        self.current, self._loaded = loaded, found
        return True

    def principal_of(self, certificate: bytes | None) -> str | None:
        """The principal of a client with this DER certificate; None: it has shown none. Raises ClientRefused."""
        if certificate is None:
            return None
        try:
            expires = x509.load_der_x509_certificate(certificate).not_valid_after_utc
            if self._now() > expires:
                raise ClientRefused(f"the client's certificate has expired on {expires:%Y-%m-%d %H:%M} UTC")
            name = self._settings.mapping_rules.name_of(java_name(certificate))
        except (NoMatchingRule, ValueError) as error:
            raise ClientRefused(str(error)) from None
        if not name:
            raise ClientRefused("the client's certificate gives it an empty name")
        return PRINCIPAL_TYPE + name

    def _check_same_server(self, loaded: LoadedTls) -> None:
        before, settings = self.current, self._settings
        if loaded.subject != before.subject and not settings.allows_dn_changes:
            raise TlsRefused(
                f"the new certificate is for {loaded.subject}, not {before.subject}; ssl.allow.dn.changes allows that"
            )
        missing = before.alternative_names - loaded.alternative_names
        if missing and not settings.allows_san_changes:
            raise TlsRefused(
                f"the new certificate lacks the names {', '.join(sorted(missing))}; ssl.allow.san.changes allows that"
            )

    def _fingerprint(self) -> tuple[object, ...]:
        files = self._settings.key_store.location, self._settings.trust_store.location
        return tuple(_state_of(one) for one in files if one is not None)


def _state_of(file: Path) -> object:
    try:
        found = os.stat(file)
    except OSError as error:
        return error.errno
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_mode
