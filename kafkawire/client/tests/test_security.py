"""Connections with the security that a properties file asks for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from click.testing import CliRunner

from kafkawire.cli.topics.command import command as topics
from kafkawire.client.connection import Address, Connection
from kafkawire.client.errors import CannotConnect, ClientError
from kafkawire.client.security import configured_connect
from kafkawire.config.tests.test_tls_enforced import PORT, client_auth, opened, pem
from testkit.certificates import HOST, Authority, pem_of

if TYPE_CHECKING:
    import trio

    from kafkawire.testing import OpenBroker

SECRET = "hunter2"


def config(authority: Authority, **lines: str) -> Path:
    """A properties file for TLS; write underscores for the dots of keys."""
    given = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.trust_file()),
        **{key.replace("_", "."): value for key, value in lines.items()},
    }
    text = "".join(f"{key}={value}\n" for key, value in given.items())
    return authority.write("client.properties", text.encode())


async def connected(broker: OpenBroker, file: Path, host: str = HOST) -> Connection:
    async def connect(address: Address) -> trio.abc.Stream:
        return broker.deps.listeners[address.port].connect()

    return await Connection.open(Address(host, PORT), configured_connect(file, connect).connect)


async def test_a_connection_over_tls(authority: Authority) -> None:
    async with opened(pem(authority)) as broker:
        connection = await connected(broker, config(authority))
        await connection.aclose()


async def test_a_client_shows_its_certificate(authority: Authority) -> None:
    async with opened(client_auth(authority)) as broker:
        key = authority.write("client.pem", pem_of(authority.issue("a@b.c")))
        store = {"ssl_keystore_type": "PEM", "ssl_keystore_location": str(key)}
        await (await connected(broker, config(authority, **store))).aclose()
        with pytest.raises(CannotConnect, match="lost the connection"):
            await connected(broker, config(authority))


async def test_another_host_name(authority: Authority) -> None:
    async with opened(pem(authority)) as broker:
        with pytest.raises(CannotConnect, match="the handshake of TLS failed: hostname mismatch"):
            await connected(broker, config(authority), "elsewhere.test")
        unchecked = config(authority, ssl_endpoint_identification_algorithm="")
        await (await connected(broker, unchecked, "elsewhere.test")).aclose()


async def test_another_authority(authority: Authority, tmp_path: Path) -> None:
    foreign = Authority(tmp_path).trust_file("foreign.pem")
    async with opened(pem(authority)) as broker:
        for file in (config(authority, ssl_truststore_location=str(foreign)), of_the_system(authority)):
            with pytest.raises(CannotConnect, match=r"the handshake of TLS failed: .*certificate"):
                await connected(broker, file)


def of_the_system(authority: Authority) -> Path:
    """A file without a trust store: the authorities of the system count."""
    return authority.write("system.properties", b"security.protocol=SSL\n")


def test_plaintext_is_the_default(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("client.id=me\nretries=3\n")
    found = configured_connect(file, cast("Any", "as it was"))
    assert (cast("Any", found.connect), found.ignored) == ("as it was", ["client.id", "retries"])


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ({"security_protocol": "SASL_SSL"}, "security.protocol=SASL_SSL: only PLAINTEXT and SSL are supported yet"),
        ({"ssl_keystore_type": "PEM", "ssl_keystore_location": "/no/such"}, "/no/such: No such file"),
        ({"ssl_truststore_type": "BKS"}, "ssl.truststore.type=BKS: must be one of JKS, PKCS12, PEM"),
        ({"ssl_truststore_password": SECRET}, "ssl.truststore.password is not for PEM"),
        ({"ssl_provider": "BC"}, "ssl.provider=BC: not supported yet"),
    ],
)
def test_files_that_are_refused(authority: Authority, lines: dict[str, str], reason: str) -> None:
    with pytest.raises(ClientError, match=reason) as refused:
        configured_connect(config(authority, **lines))
    assert SECRET not in str(refused.value)


def test_a_password_without_a_store(authority: Authority) -> None:
    """A key that has no effect is refused, for both stores."""
    for store in ("keystore", "truststore"):
        file = authority.write("some.properties", f"security.protocol=SSL\nssl.{store}.password={SECRET}\n".encode())
        with pytest.raises(ClientError, match=rf"ssl\.{store}\.password is set, but ssl\.{store}\.location is not"):
            configured_connect(file)


def test_the_option_of_a_command(authority: Authority) -> None:
    missing = CliRunner().invoke(topics, ["list", "--command-config", "/no/such/file"])
    assert (missing.exit_code, missing.stderr) == (1, "Error: /no/such/file: No such file or directory\n")
    file = config(authority, retries="3")
    unreachable = CliRunner().invoke(topics, ["list", "--command-config", str(file), "-b", "no.such.host.invalid:1"])
    assert unreachable.exit_code == 1
    assert f"{file}: retries has no effect" in unreachable.stderr
    assert "cannot connect to no.such.host.invalid:1" in unreachable.stderr
