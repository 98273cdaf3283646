"""Contexts of listeners: protocols, suites, reload, and principals of clients."""

from __future__ import annotations

import ssl
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import UnsupportedAlgorithm

from kafkawire.security.tls.cipher_suites import SUITES_OF_TLS_1_3, openssl_name
from kafkawire.security.tls.contexts import client_context, server_tls
from kafkawire.security.tls.listener_tls import ListenerTls
from kafkawire.security.tls.mapping_rules import MappingRules
from kafkawire.security.tls.settings import (
    TLS_1_2,
    TLS_1_3,
    ClientAuth,
    ClientRefused,
    KeyStoreSettings,
    StoreType,
    TlsRefused,
    TlsSettings,
    TrustStoreSettings,
)
from testkit.certificates import Authority, past, pem_of

PEM = StoreType.PEM


def settings(authority: Authority, **changes: Any) -> TlsSettings:
    key_store = KeyStoreSettings(PEM, authority.key_file())
    trust_store = TrustStoreSettings(PEM, authority.trust_file())
    return replace(TlsSettings(key_store, trust_store), **changes)


def shaken(server: ssl.SSLContext, client: ssl.SSLContext, host: str = "broker.test") -> tuple[Any, Any]:
    """A handshake in memory: both ends, or the SSLError of one."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = server.wrap_bio(to_server, to_client, server_side=True)
    other = client.wrap_bio(to_client, to_server, server_hostname=host)
    waiting = [other, one]
    for _ in range(20):
        for end in waiting[:]:
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                pass
        if not waiting:
            return one, other
    raise AssertionError("the handshake does not end")


@pytest.mark.parametrize(
    ("protocols", "suites", "version", "cipher"),
    [
        ({TLS_1_2, TLS_1_3}, (), "TLSv1.3", None),
        ({TLS_1_2}, (), "TLSv1.2", None),
        ({TLS_1_3}, (), "TLSv1.3", None),
        (
            {TLS_1_2, TLS_1_3},
            ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",),
            "TLSv1.2",
            "ECDHE-ECDSA-AES256-GCM-SHA384",
        ),
        ({TLS_1_2, TLS_1_3}, tuple(SUITES_OF_TLS_1_3), "TLSv1.3", None),
    ],
)
def test_the_offered_protocols_and_suites(
    authority: Authority, protocols: set[str], suites: tuple[str, ...], version: str, cipher: str | None
) -> None:
    made = settings(authority, protocols=frozenset(protocols), cipher_suites=suites)
    server, _ = shaken(server_tls(made).context, authority.client_context())
    assert server.version() == version
    assert cipher is None or server.cipher()[0] == cipher


def test_no_session_ticket_of_tls_1_3(authority: Authority) -> None:
    context = server_tls(settings(authority)).context
    assert context.num_tickets == 0
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_COMPRESSION


@pytest.mark.parametrize(
    ("suites", "reason"),
    [
        (("TLS_AES_128_GCM_SHA256",), "with all of its suites or not at all; add TLS_AES_256_GCM_SHA384"),
        (("SSL_RSA_WITH_RC4_128_MD5",), "SSL_RSA_WITH_RC4_128_MD5 is not supported"),
        (("TLS_RSA_WITH_SEED_CBC_SHA",), "this OpenSSL"),
    ],
)
def test_suites_that_are_refused(authority: Authority, suites: tuple[str, ...], reason: str) -> None:
    with pytest.raises(TlsRefused, match=reason):
        server_tls(settings(authority, cipher_suites=suites))


def test_suites_for_no_protocol(authority: Authority) -> None:
    made = settings(authority, protocols=frozenset({TLS_1_2}), cipher_suites=tuple(SUITES_OF_TLS_1_3))
    with pytest.raises(TlsRefused, match="no suite is for a protocol"):
        server_tls(made)


@pytest.mark.parametrize(
    ("suite", "name"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_256_CBC_SHA256", "DHE-RSA-AES256-SHA256"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8", "ECDHE-ECDSA-AES128-CCM8"),
        ("TLS_FALLBACK_SCSV", None),
    ],
)
def test_names_of_suites(suite: str, name: str | None) -> None:
    assert openssl_name(suite) == name


@pytest.mark.parametrize("auth", ClientAuth)
def test_certificates_of_clients(authority: Authority, auth: ClientAuth) -> None:
    context = server_tls(settings(authority, client_auth=auth)).context
    server, _ = shaken(context, authority.client_context(authority.issue("a@b.c", common_name="client")))
    assert bool(server.getpeercert(binary_form=True)) is (auth is not ClientAuth.NONE)
    if auth is ClientAuth.REQUIRED:
        with pytest.raises(ssl.SSLError, match="peer did not return a certificate"):
            shaken(context, authority.client_context())
    else:
        shaken(context, authority.client_context())


def test_a_certificate_of_another_authority(authority: Authority, tmp_path: Path) -> None:
    context = server_tls(settings(authority, client_auth=ClientAuth.REQUESTED)).context
    foreign = Authority(tmp_path).issue("a@b.c", common_name="client")
    with pytest.raises(ssl.SSLError, match=r"certificate verify failed|unknown ca"):
        shaken(context, authority.client_context(foreign))


def test_client_authentication_needs_a_trust_store(authority: Authority) -> None:
    made = settings(authority, client_auth=ClientAuth.REQUIRED, trust_store=TrustStoreSettings())
    with pytest.raises(TlsRefused, match=r"ssl\.truststore\.location is not set"):
        server_tls(made)


def der(authority: Authority, **changes: Any) -> bytes:
    (first, *_) = authority.issue("a@b.c", **changes).cert_chain_pems
    return ssl.PEM_cert_to_DER_cert(first.bytes().decode())


def test_principals(authority: Authority) -> None:
    tls = ListenerTls(settings(authority, mapping_rules=MappingRules("RULE:^CN=([a-z]+),.*$/$1/")))
    assert tls.principal_of(None) is None
    assert tls.principal_of(der(authority, common_name="client")) == "User:client"
    with pytest.raises(ClientRefused, match=r"no rule of ssl\.principal\.mapping\.rules is for CN=7"):
        tls.principal_of(der(authority, common_name="7"))


def test_a_client_without_a_name(authority: Authority) -> None:
    tls = ListenerTls(settings(authority, mapping_rules=MappingRules("RULE:^.*$//")))
    with pytest.raises(ClientRefused, match="an empty name"):
        tls.principal_of(der(authority))


def test_resumed_after_expiry(authority: Authority) -> None:
    """OpenSSL does not look at the dates of a certificate again when a session is resumed."""
    tls = ListenerTls(settings(authority))
    with pytest.raises(ClientRefused, match="the client's certificate has expired on 2001-01-01"):
        tls.principal_of(der(authority, expires=past()))


def test_bytes_that_are_no_certificate(authority: Authority) -> None:
    with pytest.raises(ClientRefused):
        ListenerTls(settings(authority)).principal_of(b"\x30\x00")


# Reload


def opened(authority: Authority, **changes: Any) -> ListenerTls:
    return ListenerTls(settings(authority, **changes))


def test_files_that_have_not_changed(authority: Authority) -> None:
    tls = opened(authority)
    before = tls.current
    assert not tls.reload()
    assert tls.current is before


def test_a_new_certificate(authority: Authority) -> None:
    tls, expires = opened(authority), datetime(2099, 1, 1, tzinfo=UTC)
    before = tls.current
    authority.key_file(authority.issue(expires=expires))
    assert tls.reload()
    assert tls.current.context is not before.context
    assert tls.current.expires_s == expires.timestamp()


def test_a_new_trust_store(authority: Authority, tmp_path: Path) -> None:
    tls = opened(authority, client_auth=ClientAuth.REQUIRED)
    other = Authority(tmp_path)
    client = authority.client_context(other.issue("a@b.c"))
    with pytest.raises(ssl.SSLError):
        shaken(tls.current.context, client)
    other.trust_file()
    assert tls.reload()
    shaken(tls.current.context, client)


@pytest.mark.parametrize(
    ("changes", "key", "reason"),
    [
        ({"unit": "Others"}, "allows_dn_changes", "the new certificate is for .*OU=Others.*, not .*OU=Tests"),
        ({"hosts": ("other.test",)}, "allows_san_changes", "lacks the names broker.test; ssl.allow.san.changes"),
    ],
)
def test_a_certificate_of_another_server(authority: Authority, changes: dict[str, Any], key: str, reason: str) -> None:
    for allowed in (False, True):
        tls = opened(authority, **{key: allowed})
        before = tls.current
        hosts = changes.get("hosts", ())
        authority.key_file(authority.issue(*hosts, **{name: one for name, one in changes.items() if name != "hosts"}))
        if allowed:
            assert tls.reload()
        else:
            with pytest.raises(TlsRefused, match=reason):
                tls.reload()
            assert tls.current is before


def test_more_names_are_no_other_server(authority: Authority) -> None:
    tls = opened(authority)
    authority.key_file(authority.issue("broker.test", "other.test"))
    assert tls.reload()


def test_broken_pair_keeps_the_old(authority: Authority) -> None:
    tls = opened(authority)
    before = tls.current
    one, other = authority.issue(), authority.issue()
    authority.write("server.pem", one.private_key_pem.bytes() + pem_of(other).split(b"-----END PRIVATE KEY-----")[-1])
    with pytest.raises(TlsRefused):
        tls.reload()
    assert tls.current is before
    with pytest.raises(TlsRefused):
        tls.reload()  # until it can be used, so that the alert stays


def test_a_file_that_is_made_usable(authority: Authority) -> None:
    """A change of the mode alone is enough."""
    tls, expires = opened(authority), datetime(2099, 1, 1, tzinfo=UTC)
    file = authority.key_file(authority.issue(expires=expires))
    file.chmod(0o644)
    with pytest.raises(TlsRefused, match="chmod o-r"):
        tls.reload()
    file.chmod(0o600)
    assert tls.reload()
    assert tls.current.expires_s == expires.timestamp()


@pytest.mark.parametrize("error", [UnsupportedAlgorithm("a curve"), OSError(24, "no file"), ValueError("x")])
def test_an_error_of_a_library(authority: Authority, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fails(*_: object) -> None:
        raise error

    tls = opened(authority)
    authority.key_file()
    monkeypatch.setattr("kafkawire.security.tls.contexts.load_key_store", fails)
    with pytest.raises(TlsRefused, match=f"the certificate cannot be used: {type(error).__name__}"):
        tls.reload()
    with pytest.raises(TlsRefused):
        ListenerTls(settings(authority))
    with pytest.raises(TlsRefused):
        client_context(settings(authority), checks_host=True)


def test_a_file_that_is_gone(authority: Authority) -> None:
    tls = opened(authority)
    (authority.directory / "server.pem").unlink()
    with pytest.raises(TlsRefused, match="No such file"):
        tls.reload()
