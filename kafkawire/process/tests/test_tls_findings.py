"""Findings of `kafkawire doctor` about the protection of listeners."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from kafkawire.config.broker_config import load
from kafkawire.config.tests.test_tls_enforced import client_auth, pem
from kafkawire.process.doctor import Finding, Severity
from kafkawire.process.tls_findings import examine_tls
from testkit.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Mapping

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ON_LOOPBACK = {"listeners": "PLAINTEXT://127.0.0.1:9092,SSL://:9093"}


def found(properties: Mapping[str, str]) -> list[Finding]:
    return [*examine_tls(load({**ON_LOOPBACK, **properties})[0], NOW)]


def test_protected_listeners_need_no_word(authority: Authority) -> None:
    assert found(pem(authority)) == []
    assert found({"listeners": "PLAINTEXT://localhost:9092"}) == []


@pytest.mark.parametrize("host", ["", "0.0.0.0", "10.0.0.1", "kafka1.example.org"])
def test_a_listener_without_protection(host: str) -> None:
    [one] = found({"listeners": f"PLAINTEXT://{host}:9092"})
    assert (one.severity, one.subject) == (Severity.WARNING, "listener PLAINTEXT")
    assert one.text == "it is not encrypted, and asks no client for its name"


def test_a_certificate_that_expires_soon(authority: Authority) -> None:
    store = {"ssl.keystore.type": "PEM"}
    for days, count in ((31, 0), (29, 1)):
        file = authority.key_file(authority.issue(expires=NOW + timedelta(days=days)))
        findings = found({**store, "ssl.keystore.location": str(file)})
        assert len(findings) == count
    assert findings[0].text == "its certificate expires on 2026-01-30 00:00 UTC"


def test_certificates_that_are_only_requested(authority: Authority) -> None:
    [one] = found(client_auth(authority, "requested"))
    assert one.text.startswith("ssl.client.auth=requested: a client without a certificate is User:ANONYMOUS")


def test_a_certificate_without_the_names_of_hosts(authority: Authority) -> None:
    leaf = authority.ca.issue_cert(common_name="broker")
    store = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(authority.key_file(leaf))}
    [one] = found(store)
    assert one.text.startswith("its certificate has no alternative names, only the subject CN=broker")


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"ssl.keystore.location": "/no/such/file"}, "listener SSL: /no/such/file: No such file or directory"),
        ({"ssl.principal.mapping.rules": "RULE:("}, "ssl.principal.mapping.rules: "),
    ],
)
def test_a_broker_that_does_not_start(authority: Authority, properties: dict[str, str], reason: str) -> None:
    [one] = found({**pem(authority), **properties})
    assert (one.severity, one.advice) == (Severity.PROBLEM, "a broker does not start with it")
    assert one.text.startswith(reason)
