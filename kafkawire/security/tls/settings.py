"""Settings of TLS on one listener, and what may be wrong with them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

from kafkawire.security.tls.mapping_rules import MappingRules

TLS_1_2: Final = "TLSv1.2"
TLS_1_3: Final = "TLSv1.3"


class TlsRefused(Exception):
    """TLS settings or files that cannot be used. The text names the key or the file, and quotes no secret."""


class ClientRefused(Exception):
    """The certificate of a client does not give it a name, or is not valid any more. The text is for the log."""


class StoreType(Enum):
    """Forms of a store. A store of the type JKS is read by its content, as in Java."""

    JKS = "JKS"
    PKCS12 = "PKCS12"
    PEM = "PEM"


class ClientAuth(Enum):
    """Whether clients show a certificate."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class KeyStoreSettings:
    """Place of a private key and its certificates: a file, or two PEM texts."""

    type: StoreType = StoreType.JKS
    location: Path | None = None
    password: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    certificate_chain: str | None = field(default=None, repr=False)

    @property
    def is_set(self) -> bool:
        return any(one is not None for one in (self.location, self.password, self.key, self.certificate_chain))


@dataclass(frozen=True, slots=True)
class TrustStoreSettings:
    """Place of the certificates that sign those of clients: a file, or a PEM text."""

    type: StoreType = StoreType.JKS
    location: Path | None = None
    password: str | None = field(default=None, repr=False)
    certificates: str | None = field(default=None, repr=False)

    @property
    def is_set(self) -> bool:
        return any(one is not None for one in (self.location, self.password, self.certificates))


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """TLS of one listener. Cipher suites have IANA names; none: those of OpenSSL's default."""

    key_store: KeyStoreSettings = field(default_factory=KeyStoreSettings)
    trust_store: TrustStoreSettings = field(default_factory=TrustStoreSettings)
    protocols: frozenset[str] = frozenset({TLS_1_2, TLS_1_3})
    cipher_suites: tuple[str, ...] = ()
    client_auth: ClientAuth = ClientAuth.NONE
    mapping_rules: MappingRules = field(default_factory=MappingRules)
    allows_dn_changes: bool = False
    allows_san_changes: bool = False
