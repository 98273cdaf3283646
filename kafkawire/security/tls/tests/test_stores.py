"""Key stores and trust stores: every form, and every refusal."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from kafkawire.security.tls.settings import KeyStoreSettings, StoreType, TlsRefused, TrustStoreSettings
from kafkawire.security.tls.stores import load_key_store, load_trust_store
from testkit.certificates import Authority, past, pem_of

PASSWORD = "hunter2"
PEM, PKCS12, JKS = StoreType.PEM, StoreType.PKCS12, StoreType.JKS


def certificates(leaf: trustme.LeafCert) -> str:
    return "".join(one.bytes().decode() for one in leaf.cert_chain_pems)


def locked(leaf: trustme.LeafCert) -> bytes:
    """The key with a password, and the certificates."""
    key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
    form = Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(PASSWORD.encode())
    return key.private_bytes(*form) + certificates(leaf).encode()


def test_a_pem_file(authority: Authority) -> None:
    leaf = authority.issue(common_name="broker 1")
    store = load_key_store(KeyStoreSettings(PEM, authority.key_file(leaf)))
    assert "broker 1" in store.certificate.subject.rfc4514_string()
    assert store.pem().count(b"BEGIN CERTIFICATE") == len(leaf.cert_chain_pems)


def test_a_pem_file_with_a_password(authority: Authority) -> None:
    file = authority.write("locked.pem", locked(authority.issue()))
    assert load_key_store(KeyStoreSettings(PEM, file, key_password=PASSWORD)).chain
    for password, reason in (
        (None, "ssl.key.password is not set"),
        ("other", "there is no private key in PEM form, or ssl.key.password is wrong"),
    ):
        with pytest.raises(TlsRefused, match=f"^{file}: .*{reason}"):
            load_key_store(KeyStoreSettings(PEM, file, key_password=password))


def test_pem_texts(authority: Authority) -> None:
    leaf = authority.issue()
    key = leaf.private_key_pem.bytes().decode()
    assert load_key_store(KeyStoreSettings(PEM, key=key, certificate_chain=certificates(leaf))).chain
    trusted = load_trust_store(TrustStoreSettings(PEM, certificates=authority.certificate.decode()))
    assert len(trusted) == 1


@pytest.mark.parametrize("kind", [PKCS12, JKS])
def test_a_pkcs12_file(authority: Authority, kind: StoreType) -> None:
    """The content decides if the type is JKS."""
    file = authority.pkcs12_file(PASSWORD.encode())
    store = load_key_store(KeyStoreSettings(kind, file, PASSWORD))
    assert len(store.chain) == 2  # with the authority
    trusted = load_trust_store(TrustStoreSettings(kind, authority.pkcs12_trust_file(PASSWORD.encode()), PASSWORD))
    assert len(trusted) == 1


def test_a_pkcs12_file_without_a_key(authority: Authority) -> None:
    with pytest.raises(TlsRefused, match="no private key with a certificate"):
        load_key_store(KeyStoreSettings(PKCS12, authority.pkcs12_trust_file(PASSWORD.encode()), PASSWORD))


@pytest.mark.parametrize("magic", ["feedfeed", "cececece"])
def test_a_file_of_java(authority: Authority, magic: str) -> None:
    file = authority.write("server.jks", bytes.fromhex(magic) + b"\0\0\0\2")
    for load in (
        partial(load_key_store, KeyStoreSettings(JKS, file, PASSWORD)),
        partial(load_trust_store, TrustStoreSettings(JKS, file, PASSWORD)),
    ):
        with pytest.raises(TlsRefused, match=f"keytool -importkeystore -srckeystore {file} .*-deststoretype PKCS12"):
            load()


def test_a_key_that_everyone_can_read(authority: Authority) -> None:
    file = authority.key_file()
    file.chmod(0o644)
    with pytest.raises(TlsRefused, match=f"every user of this machine can read the private key; run chmod o-r {file}"):
        load_key_store(KeyStoreSettings(PEM, file))
    file.chmod(0o640)
    assert load_key_store(KeyStoreSettings(PEM, file)).chain


def test_a_key_of_another_certificate(authority: Authority) -> None:
    one, other = authority.issue(), authority.issue()
    file = authority.write("mixed.pem", one.private_key_pem.bytes() + certificates(other).encode())
    with pytest.raises(TlsRefused, match=f"^{file}: the private key is not that of the first certificate$"):
        load_key_store(KeyStoreSettings(PEM, file))


def test_a_certificate_that_is_not_valid_now(authority: Authority) -> None:
    file = authority.key_file(authority.issue(expires=past()))
    with pytest.raises(TlsRefused, match="the certificate has expired on 2001-01-01 00:00 UTC"):
        load_key_store(KeyStoreSettings(PEM, file))
    with pytest.raises(TlsRefused, match="the certificate is valid from 2000-01-01 00:00 UTC"):
        load_key_store(KeyStoreSettings(PEM, file), datetime(1999, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"location": None}, "ssl.keystore.location is not set"),
        ({"location": Path("/no/such/file")}, "/no/such/file: No such file or directory"),
        ({"type": PKCS12}, "ssl.keystore.location needs ssl.keystore.password"),
        ({"type": PKCS12, "password": "x"}, "this is no PKCS12 store, or its password is wrong"),
        ({"type": PKCS12, "password": "x", "key_password": "y"}, "ssl.key.password differs"),
        ({"password": "x"}, "ssl.keystore.password is not for PEM"),
        ({"type": JKS, "location": None, "password": "x"}, "ssl.keystore.password is set, but ssl.keystore.location"),
        ({"key": "k"}, "ssl.keystore.key needs ssl.keystore.certificate.chain"),
        ({"key": "k", "certificate_chain": "c"}, "ssl.keystore.key and ssl.keystore.location are both set"),
        ({"type": JKS, "key": "k", "certificate_chain": "c"}, "ssl.keystore.key needs ssl.keystore.type=PEM, not JKS"),
        ({"certificate_chain": "c"}, "ssl.keystore.certificate.chain needs ssl.keystore.key"),
        ({"key": "k", "certificate_chain": "c", "location": None}, "there is no private key in PEM form"),
        ({"key_password": "x"}, "the private key is not encrypted"),
    ],
)
def test_key_stores_that_are_refused(authority: Authority, changes: dict[str, Any], reason: str) -> None:
    settings = KeyStoreSettings(PEM, authority.key_file())
    with pytest.raises(TlsRefused, match=reason):
        load_key_store(replace(settings, **changes))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"location": None}, "ssl.truststore.location is not set"),
        ({"location": Path("/no/such/file")}, "/no/such/file: No such file or directory"),
        ({"type": PKCS12, "password": "x"}, "this is no PKCS12 store, or its password is wrong"),
        ({"password": "x"}, "ssl.truststore.password is not for PEM"),
        ({"type": JKS, "location": None, "password": "x"}, "ssl.truststore.password is set, but"),
        ({"certificates": "c"}, "ssl.truststore.certificates and ssl.truststore.location are both set"),
        ({"type": JKS, "certificates": "c"}, "ssl.truststore.certificates needs ssl.truststore.type=PEM, not JKS"),
        ({"certificates": "c", "location": None}, "ssl.truststore.certificates: there is no certificate in PEM form"),
    ],
)
def test_trust_stores_that_are_refused(authority: Authority, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(TlsRefused, match=reason):
        load_trust_store(replace(TrustStoreSettings(PEM, authority.trust_file()), **changes))


def test_a_store_without_certificates(authority: Authority) -> None:
    file = authority.write("key.pem", authority.issue().private_key_pem.bytes())
    with pytest.raises(TlsRefused, match="there is no certificate in PEM form"):
        load_key_store(KeyStoreSettings(PEM, file))


def test_no_secret_is_shown(authority: Authority) -> None:
    leaf = authority.issue()
    key = leaf.private_key_pem.bytes().decode()
    secrets = KeyStoreSettings(PEM, None, PASSWORD, PASSWORD, key, pem_of(leaf).decode())
    assert PASSWORD not in repr(secrets)
    assert "PRIVATE" not in repr(secrets)
    assert PASSWORD not in repr(TrustStoreSettings(PEM, None, PASSWORD))
