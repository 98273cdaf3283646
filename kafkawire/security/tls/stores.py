"""Key stores and trust stores: PEM files or texts, and PKCS12 files. Reads files; every error is a TlsRefused.

The rules on passwords are Kafka's (DefaultSslEngineFactory). JKS and JCEKS files are refused with the command that
converts them: only Java reads them.
"""

from __future__ import annotations

import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    pkcs12,
)

from kafkawire.security.tls.settings import KeyStoreSettings, StoreType, TlsRefused, TrustStoreSettings

_JAVA_MAGIC: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")  # JKS, JCEKS


class KeyStore(NamedTuple):
    """A private key, and its certificate with those that sign it."""

    key: PrivateKeyTypes
    chain: tuple[x509.Certificate, ...]

    @property
    def certificate(self) -> x509.Certificate:
        return self.chain[0]

    def pem(self) -> bytes:
        """Key and certificates, without encryption. Never write this to a disk."""
        key = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return b"".join([key, *(one.public_bytes(Encoding.PEM) for one in self.chain)])


def load_key_store(settings: KeyStoreSettings, now: datetime | None = None) -> KeyStore:
    """Read a key store, and check that it can be used now. Raises TlsRefused."""
    _check_key_passwords(settings)
    if settings.key is not None:
        name, store = "ssl.keystore.key", _key_from_pem(settings.key.encode(), settings)
    elif settings.location is not None:
        name, content = str(settings.location), _read(settings.location, is_secret=True)
        try:
            is_pem = settings.type is StoreType.PEM
            store = _key_from_pem(content, settings) if is_pem else _key_from_pkcs12(content, settings)
        except TlsRefused as error:
            raise TlsRefused(f"{name}: {error}") from None
    else:
        raise TlsRefused("ssl.keystore.location is not set: a listener with TLS needs a key and a certificate")
    _check_usable(name, store, now or datetime.now(UTC))
    return store


def load_trust_store(settings: TrustStoreSettings) -> tuple[x509.Certificate, ...]:
    """The trusted certificates. Raises TlsRefused."""
    _check_trust_passwords(settings)
    if settings.certificates is not None:
        return _certificates(settings.certificates.encode(), "ssl.truststore.certificates")
    location = settings.location
    if location is None:
        raise TlsRefused("ssl.truststore.location is not set: certificates of clients could not be checked")
    content = _read(location, is_secret=False)
    if settings.type is StoreType.PEM:
        return _certificates(content, str(location))
    try:
        store = _pkcs12(content, settings.password)
    except TlsRefused as error:
        raise TlsRefused(f"{location}: {error}") from None
    found = [one.certificate for one in (store.cert, *store.additional_certs) if one is not None]
    if not found:
        raise TlsRefused(f"{location}: the store has no certificate")
    return tuple(found)


def _check_key_passwords(settings: KeyStoreSettings) -> None:
    is_pem, has_file = settings.type is StoreType.PEM, settings.location is not None
    if settings.key is not None:
        _refuse(not is_pem, f"ssl.keystore.key needs ssl.keystore.type=PEM, not {settings.type.value}")
        _refuse(settings.certificate_chain is None, "ssl.keystore.key needs ssl.keystore.certificate.chain")
        _refuse(has_file, "ssl.keystore.key and ssl.keystore.location are both set")
    _refuse(
        settings.key is None and settings.certificate_chain is not None,
        "ssl.keystore.certificate.chain needs ssl.keystore.key",
    )
    has_password = settings.password is not None
    _refuse(is_pem and has_password, "ssl.keystore.password is not for PEM: set ssl.key.password")
    _refuse(not has_file and has_password, "ssl.keystore.password is set, but ssl.keystore.location is not")
    _refuse(has_file and not (is_pem or has_password), "ssl.keystore.location needs ssl.keystore.password")


def _check_trust_passwords(settings: TrustStoreSettings) -> None:
    is_pem, has_file = settings.type is StoreType.PEM, settings.location is not None
    if settings.certificates is not None:
        _refuse(not is_pem, f"ssl.truststore.certificates needs ssl.truststore.type=PEM, not {settings.type.value}")
        _refuse(has_file, "ssl.truststore.certificates and ssl.truststore.location are both set")
    has_password = settings.password is not None
    _refuse(is_pem and has_password, "ssl.truststore.password is not for PEM")
    _refuse(not has_file and has_password, "ssl.truststore.password is set, but ssl.truststore.location is not")


def _refuse(is_wrong: bool, text: str) -> None:
    if is_wrong:
        raise TlsRefused(text)


def _read(location: Path, *, is_secret: bool) -> bytes:
    try:
        content = location.read_bytes()
        mode = location.stat().st_mode
    except OSError as error:
        raise TlsRefused(f"{location}: {error.strerror or error}") from None
    if is_secret and mode & stat.S_IROTH:
        raise TlsRefused(f"{location}: every user of this machine can read the private key; run chmod o-r {location}")
    if content.startswith(_JAVA_MAGIC):
        raise TlsRefused(
            f"{location}: only Java reads this form; convert it with: keytool -importkeystore -srckeystore {location} "
            f"-destkeystore {location}.p12 -deststoretype PKCS12"
        )
    return content


def _key_from_pem(content: bytes, settings: KeyStoreSettings) -> KeyStore:
    certificates = content if settings.certificate_chain is None else settings.certificate_chain.encode()
    password = None if settings.key_password is None else settings.key_password.encode()
    try:
        key = load_pem_private_key(content, password)
    except TypeError:
        is_missing = password is None
        raise TlsRefused(
            "the private key is encrypted, but ssl.key.password is not set"
            if is_missing
            else "ssl.key.password is set, but the private key is not encrypted"
        ) from None
    except ValueError:
        raise TlsRefused("there is no private key in PEM form, or ssl.key.password is wrong") from None
    return KeyStore(key, _certificates(certificates, "the store"))


def _key_from_pkcs12(content: bytes, settings: KeyStoreSettings) -> KeyStore:
    if settings.key_password not in (None, settings.password):
        raise TlsRefused("ssl.key.password differs from ssl.keystore.password, which PKCS12 does not allow")
    store = _pkcs12(content, settings.password)
    if store.key is None or store.cert is None:
        raise TlsRefused("the store has no private key with a certificate")
    return KeyStore(store.key, _in_order(store.cert.certificate, [one.certificate for one in store.additional_certs]))


def _pkcs12(content: bytes, password: str | None) -> pkcs12.PKCS12KeyAndCertificates:
    try:
        return pkcs12.load_pkcs12(content, None if password is None else password.encode())
    except ValueError:
        raise TlsRefused("this is no PKCS12 store, or its password is wrong") from None


def _certificates(content: bytes, name: str) -> tuple[x509.Certificate, ...]:
    try:
        return tuple(x509.load_pem_x509_certificates(content))
    except ValueError:
        raise TlsRefused(f"{name}: there is no certificate in PEM form") from None


def _in_order(certificate: x509.Certificate, others: list[x509.Certificate]) -> tuple[x509.Certificate, ...]:
    """The chain from a certificate to its root: PKCS12 has the certificates in any order."""
    chain, by_subject = [certificate], {one.subject: one for one in others}
    while (issuer := by_subject.pop(chain[-1].issuer, None)) is not None:
        chain.append(issuer)
    return tuple(chain)


def _check_usable(name: str, store: KeyStore, now: datetime) -> None:
    certificate = store.certificate
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if certificate.public_key().public_bytes(*form) != store.key.public_key().public_bytes(*form):
        raise TlsRefused(f"{name}: the private key is not that of the first certificate")
    if now > certificate.not_valid_after_utc:
        raise TlsRefused(f"{name}: the certificate has expired on {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC")
    if now < certificate.not_valid_before_utc:
        raise TlsRefused(f"{name}: the certificate is valid from {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC")
