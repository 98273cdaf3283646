"""Each key of TLS, set to another value than its default, changes the behaviour of a running broker."""

from __future__ import annotations

import ssl
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
import structlog.testing
import trio

from kafkawire.broker import StartError
from kafkawire.config.broker_config import ConfigError, load
from kafkawire.messages.metadata import MetadataRequest
from kafkawire.testing import Client, OpenBroker, open_broker
from testkit.certificates import HOST, Authority, past

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

enforces = pytest.mark.enforces
PASSWORD = "hunter2"
PORT = 9093
LISTENERS = {"listeners": "PLAINTEXT://memory:9092,SSL://memory:9093"}


def pem(authority: Authority) -> dict[str, str]:
    """The keys of a listener with a PEM file."""
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(authority.key_file())}


def client_auth(authority: Authority, value: str = "required") -> dict[str, str]:
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(authority.trust_file())}
    return {**pem(authority), **trust, "ssl.client.auth": value}


@asynccontextmanager
async def opened(properties: Mapping[str, str]) -> AsyncIterator[OpenBroker]:
    async with open_broker(**{**LISTENERS, **properties}) as broker:
        yield broker


async def secure(
    broker: OpenBroker, authority: Authority, leaf: Any = None, context: ssl.SSLContext | None = None
) -> trio.SSLStream[Any]:
    """A connection that has had an answer, so that the broker is done with the handshake, too."""
    context = context or authority.client_context(leaf)
    stream = trio.SSLStream(broker.deps.listeners[PORT].connect(), context, server_hostname=HOST)
    reply = await Client(cast("Any", stream)).call(MetadataRequest(), 4)
    assert cast("Any", reply).brokers[0].port == PORT
    return stream


async def is_refused(broker: OpenBroker, authority: Authority, leaf: Any = None) -> bool:
    try:
        await secure(broker, authority, leaf)
    except (trio.BrokenResourceError, EOFError):
        return True
    return False


async def start_error(properties: Mapping[str, str]) -> str:
    with pytest.RaisesGroup(pytest.RaisesExc(StartError)) as refused:
        async with opened(properties):
            pass
    return str(refused.value.exceptions[0])


# Stores


@enforces("ssl.keystore.type")
@enforces("ssl.keystore.location")
async def test_a_key_store_in_a_pem_file(authority: Authority) -> None:
    async with opened(pem(authority)) as broker:
        await secure(broker, authority)


@enforces("ssl.keystore.password")
@pytest.mark.parametrize("kind", [{}, {"ssl.keystore.type": "PKCS12"}])
async def test_a_key_store_in_a_pkcs12_file(authority: Authority, kind: dict[str, str]) -> None:
    location = {"ssl.keystore.location": str(authority.pkcs12_file(PASSWORD.encode()))}
    async with opened({**kind, **location, "ssl.keystore.password": PASSWORD}) as broker:
        await secure(broker, authority)


@enforces("ssl.key.password")
async def test_a_password_of_a_key(authority: Authority) -> None:
    error = await start_error({**pem(authority), "ssl.key.password": PASSWORD})
    assert error.endswith("server.pem: ssl.key.password is set, but the private key is not encrypted")
    assert PASSWORD not in error


@enforces("ssl.keystore.key")
@enforces("ssl.keystore.certificate.chain")
async def test_a_key_store_without_a_file(authority: Authority) -> None:
    leaf = authority.issue()
    texts = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": leaf.private_key_pem.bytes().decode(),
        "ssl.keystore.certificate.chain": "".join(one.bytes().decode() for one in leaf.cert_chain_pems),
    }
    async with opened(texts) as broker:
        await secure(broker, authority)


@enforces("ssl.truststore.type")
@enforces("ssl.truststore.location")
async def test_a_trust_store_in_a_pem_file(authority: Authority, tmp_path: Path) -> None:
    async with opened(client_auth(authority)) as broker:
        await secure(broker, authority, authority.issue("a@b.c"))
        assert await is_refused(broker, authority, Authority(tmp_path).issue("a@b.c"))


@enforces("ssl.truststore.password")
async def test_a_trust_store_in_a_pkcs12_file(authority: Authority) -> None:
    trust = {
        "ssl.truststore.location": str(authority.pkcs12_trust_file(PASSWORD.encode())),
        "ssl.truststore.password": PASSWORD,
    }
    async with opened({**pem(authority), **trust, "ssl.client.auth": "required"}) as broker:
        await secure(broker, authority, authority.issue("a@b.c"))


@enforces("ssl.truststore.certificates")
async def test_a_trust_store_without_a_file(authority: Authority) -> None:
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority.certificate.decode()}
    async with opened({**pem(authority), **trust, "ssl.client.auth": "required"}) as broker:
        await secure(broker, authority, authority.issue("a@b.c"))


# Clients


@enforces("ssl.client.auth")
@pytest.mark.parametrize(("value", "refuses"), [("none", False), ("requested", False), ("required", True)])
async def test_a_client_without_a_certificate(authority: Authority, value: str, refuses: bool) -> None:
    async with opened(client_auth(authority, value)) as broker:
        assert await is_refused(broker, authority) is refuses


@enforces("ssl.principal.mapping.rules")
async def test_a_certificate_that_no_rule_names(authority: Authority) -> None:
    rules = {"ssl.principal.mapping.rules": "RULE:^CN=known,.*$/known/"}
    async with opened({**client_auth(authority), **rules}) as broker:
        await secure(broker, authority, authority.issue("a@b.c", common_name="known"))
        assert await is_refused(broker, authority, authority.issue("a@b.c", common_name="other"))


async def test_an_expired_certificate(authority: Authority) -> None:
    async with opened(client_auth(authority)) as broker:
        assert await is_refused(broker, authority, authority.issue("a@b.c", expires=past()))


@enforces("ssl.endpoint.identification.algorithm")
@pytest.mark.parametrize("value", ["https", ""])
async def test_no_listener_checks_the_host_of_a_client(authority: Authority, value: str) -> None:
    algorithm = {"ssl.endpoint.identification.algorithm": value}
    async with opened({**client_auth(authority), **algorithm}) as broker:
        await secure(broker, authority, authority.issue("elsewhere.test"))


@enforces("connections.max.unauthenticated")
async def test_handshakes_at_the_same_time(authority: Authority) -> None:
    async with opened({**pem(authority), "connections.max.unauthenticated": "4"}) as broker:
        listener = broker.deps.listeners[PORT]
        listener.connect()
        refused = listener.connect()
        with trio.fail_after(1):
            assert await refused.receive_some() == b""


# Protocols


@enforces("ssl.enabled.protocols")
@enforces("ssl.protocol")
@enforces("ssl.cipher.suites")
@pytest.mark.parametrize(
    ("properties", "version"),
    [
        ({}, "TLSv1.3"),
        ({"ssl.enabled.protocols": "TLSv1.2"}, "TLSv1.2"),
        ({"ssl.enabled.protocols": "TLSv1.3"}, "TLSv1.3"),
        ({"ssl.enabled.protocols": ""}, "TLSv1.3"),
        ({"ssl.protocol": "TLSv1.2"}, "TLSv1.2"),
        ({"ssl.protocol": "TLS"}, "TLSv1.3"),
        ({"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}, "TLSv1.2"),
        ({"listener.name.ssl.ssl.protocol": "TLSv1.2", "ssl.protocol": "TLSv1.3"}, "TLSv1.2"),
    ],
)
async def test_the_version_of_tls(authority: Authority, properties: dict[str, str], version: str) -> None:
    async with opened({**pem(authority), **properties}) as broker:
        stream = await secure(broker, authority)
        assert stream.version() == version


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"ssl.keystore.location": "/no/such/file"}, "listener SSL: /no/such/file: No such file or directory"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "ssl.enabled.protocols: TLSv1.1 is not one of TLSv1.2, TLSv1.3"),
        (
            {"ssl.enabled.protocols": "TLSv1.3", "listener.name.ssl.ssl.protocol": "TLSv1.2"},
            "listener.name.ssl.ssl.protocol=TLSv1.2: no version of ssl.enabled.protocols is as old",
        ),
        ({"ssl.principal.mapping.rules": "RULE:("}, "ssl.principal.mapping.rules: 'RULE:(' is no rule"),
        ({"ssl.client.auth": "required"}, "listener SSL: ssl.truststore.location is not set"),
        ({"ssl.cipher.suites": "NULL"}, "listener SSL: ssl.cipher.suites: NULL is not supported"),
    ],
)
async def test_a_listener_that_cannot_be_opened(authority: Authority, properties: dict[str, str], reason: str) -> None:
    assert (await start_error({**pem(authority), **properties})).startswith(reason)


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        (
            {"listener.name.sssl.ssl.client.auth": "none"},
            "listener.name.sssl.ssl.client.auth: there is no such listener",
        ),
        ({"listener.name.ssl.ssl.keystroke": "x"}, "listener.name.ssl.ssl.keystroke: ssl.keystroke is not a key of a"),
        ({"listener.name.ssl.num.partitions": "1"}, "num.partitions is not a key of a listener"),
        ({"listener.name.SSL.ssl.client.auth": "none"}, "there is no such listener"),
        ({"listener.name.ssl.ssl.client.auth": "no"}, "listener.name.ssl.ssl.client.auth=no: must be one of required"),
        ({"listener.name.ssl.ssl.provider": "BC"}, "listener.name.ssl.ssl.provider=BC: not supported yet"),
        ({"ssl.keystroke": "x"}, "ssl.keystroke: TLS has no such key"),
        ({"ssl.endpoint.identification.algorithm": "htps"}, "must be one of https, "),
        (
            {"listeners": "SSL://h:1,SECURE://h:2", "listener.name.secure.ssl.client.auth": "required"},
            "listener.name.secure.ssl.client.auth: listener SECURE is PLAINTEXT, not SSL",
        ),
        ({"ssl.engine.factory.class": "x"}, "ssl.engine.factory.class=x: not supported yet"),
        ({"ssl.keymanager.algorithm": "x"}, "ssl.keymanager.algorithm=x: not supported yet, only .*SunX509"),
        ({"zookeeper.connect": "z:1"}, "brokers reach each other at SSL, which has to be PLAINTEXT as yet"),
    ],
)
def test_keys_that_are_refused(properties: dict[str, str], reason: str) -> None:
    cluster = {"listeners": "SSL://h:1", "inter.broker.listener.name": "SSL", "inter.broker.secret.file": "f"}
    with pytest.raises(ConfigError, match=reason):
        load({**cluster, **properties})


def test_the_prefix_of_a_controller_is_a_warning() -> None:
    given = {"controller.listener.names": "CONTROLLER", "listener.name.controller.ssl.client.auth": "required"}
    _, warnings = load({**given, "listeners": "PLAINTEXT://h:1,CONTROLLER://h:2"})
    assert "listener.name.controller.ssl.client.auth has no effect: this broker needs no KRaft quorum" in warnings


def test_keys_of_tls_without_a_listener_for_them() -> None:
    _, warnings = load({"listeners": "PLAINTEXT://h:1", "ssl.client.auth": "required"})
    assert warnings == ["ssl.client.auth has no effect: no listener is SSL"]


@pytest.mark.parametrize("auth", ["requested", "required"])
def test_a_warning_of_certificates_that_are_only_requested(auth: str) -> None:
    _, warnings = load({"listeners": "SSL://h:1", "inter.broker.listener.name": "SSL", "ssl.client.auth": auth})
    text = "ssl.client.auth=requested: a client of SSL without a certificate is User:ANONYMOUS"
    assert warnings == ([text] if auth == "requested" else [])


# Changes while the broker runs


async def expiry(broker: OpenBroker, authority: Authority) -> datetime:
    """The end of the certificate that a new connection is shown."""
    stream = await secure(broker, authority)
    found = cast("Any", stream).getpeercert()["notAfter"]
    return datetime.strptime(found, "%b %d %H:%M:%S %Y %Z").replace(tzinfo=UTC)


@enforces("ssl.reload.interval.ms")
@pytest.mark.parametrize("interval_ms", ["1000", "5000"])
async def test_a_changed_file(authority: Authority, interval_ms: str) -> None:
    expires = datetime(2099, 1, 1, tzinfo=UTC)
    async with opened({**pem(authority), "ssl.reload.interval.ms": interval_ms}) as broker:
        before = await secure(broker, authority)
        authority.key_file(authority.issue(expires=expires))
        await trio.sleep(int(interval_ms) / 1000 - 0.5)
        assert await expiry(broker, authority) != expires
        await trio.sleep(1)
        assert await expiry(broker, authority) == expires
        reply = await Client(cast("Any", before)).call(MetadataRequest(), 4)  # open connections stay
        assert cast("Any", reply).brokers


async def test_a_changed_file_at_once(authority: Authority) -> None:
    expires = datetime(2099, 1, 1, tzinfo=UTC)
    async with opened(pem(authority)) as broker:
        authority.key_file(authority.issue(expires=expires))
        broker.broker.tls.reload_soon()
        await trio.sleep(0.1)
        assert await expiry(broker, authority) == expires


@enforces("ssl.allow.dn.changes")
@pytest.mark.parametrize("allowed", ["false", "true"])
async def test_a_certificate_with_another_name(authority: Authority, allowed: str) -> None:
    expires = datetime(2099, 1, 1, tzinfo=UTC)
    async with opened({**pem(authority), "ssl.allow.dn.changes": allowed}) as broker:
        authority.key_file(authority.issue(unit="Others", expires=expires))
        with structlog.testing.capture_logs() as logged:
            broker.broker.tls.reload_soon()
            await trio.sleep(0.1)
        assert (await expiry(broker, authority) == expires) is (allowed == "true")
        events = {"true": "certificate reloaded", "false": "certificate not reloaded"}
        assert [one["event"] for one in logged] == [events[allowed]]


@enforces("ssl.allow.san.changes")
@pytest.mark.parametrize("allowed", ["false", "true"])
async def test_a_certificate_that_lacks_a_host(authority: Authority, allowed: str) -> None:
    authority.key_file(authority.issue(HOST, "other.test"))
    store = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(authority.directory / "server.pem")}
    expires = datetime(2099, 1, 1, tzinfo=UTC)
    async with opened({**store, "ssl.allow.san.changes": allowed}) as broker:
        authority.key_file(authority.issue(HOST, expires=expires))
        broker.broker.tls.reload_soon()
        await trio.sleep(0.1)
        assert (await expiry(broker, authority) == expires) is (allowed == "true")
        assert broker.broker.tls.reloads_failed == (0 if allowed == "true" else 1)
