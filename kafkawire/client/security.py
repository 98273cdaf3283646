"""Connections of a client with the security that a properties file asks for, in the keys of Kafka's clients.

`security.protocol` is PLAINTEXT or SSL. The keys of TLS are those of `kafkawire.config.security.ssl_keys`, as far as
they are a client's.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from kafkawire.client.connection import Address, Connect, connect_tcp
from kafkawire.client.errors import ClientError
from kafkawire.config.broker_config import read_value
from kafkawire.config.properties import parse, text_of
from kafkawire.config.security.listener_keys import ListenerValues
from kafkawire.config.security.ssl_keys import SSL_KEYS
from kafkawire.config.values import ConfigError
from kafkawire.security.tls.configured import tls_settings
from kafkawire.security.tls.settings import TlsRefused

if TYPE_CHECKING:
    import ssl

PROTOCOL: Final = "security.protocol"
PLAINTEXT, SSL = "PLAINTEXT", "SSL"
_OF_LISTENERS: Final = frozenset(
    {"ssl.client.auth", "ssl.principal.mapping.rules", "ssl.allow.dn.changes", "ssl.allow.san.changes"}
)
CLIENT_KEYS: Final = {PROTOCOL, *SSL_KEYS} - _OF_LISTENERS


class ConfiguredConnect(NamedTuple):
    """A function that connects, and the keys of the file that have no effect."""

    connect: Connect
    ignored: list[str]


def configured_connect(file: Path, connect: Connect = connect_tcp) -> ConfiguredConnect:
    """Read a properties file, as `--command-config` of Kafka's tools. `connect`: makes the connection below TLS. Raises
    ClientError, which quotes no secret."""
    try:
        found = {key: value for key, value, _ in parse(text_of(file), str(file))}
        given = {key: value for key, value in found.items() if key in CLIENT_KEYS}
        configured = _configured(given, connect)
        obeyed = {PROTOCOL} if configured is connect else given.keys()
        return ConfiguredConnect(configured, sorted(found.keys() - obeyed))
    except (ConfigError, TlsRefused) as error:
        raise ClientError(str(error)) from None


def _configured(given: Mapping[str, str], connect: Connect) -> Connect:
    protocol = given.get(PROTOCOL, PLAINTEXT).strip().upper()
    if protocol == PLAINTEXT:
        return connect
    if protocol != SSL:
        raise ConfigError(f"{PROTOCOL}={protocol}: only {PLAINTEXT} and {SSL} are supported yet", PROTOCOL)
    return _over_tls(_context(given), connect)


def _context(given: Mapping[str, str]) -> ssl.SSLContext:
    from kafkawire.security.tls.contexts import client_context  # loads a library that TLS alone needs

    for name in given.keys() - {PROTOCOL}:
        read_value(SSL_KEYS[name], given[name])
    values = ListenerValues(given, None)
    return client_context(tls_settings(values), checks_host=bool(values["ssl.endpoint.identification.algorithm"]))


def _over_tls(context: ssl.SSLContext, connect: Connect) -> Connect:
    async def connect_tls(address: Address) -> trio.abc.Stream:
        """Connect, and do the handshake. Raises OSError."""
        raw = await connect(address)
        stream = trio.SSLStream(raw, context, server_hostname=address.host, https_compatible=True)
        try:
            await stream.do_handshake()
        except trio.BrokenResourceError as error:
            await trio.aclose_forcefully(raw)
            raise ConnectionError(f"the handshake of TLS failed: {_reason(error)}") from None
        except BaseException:  # such as the end of the time for it
            await trio.aclose_forcefully(raw)
            raise
        return stream

    return connect_tls


def _reason(error: BaseException) -> str:
    """The words of OpenSSL, or of the system."""
    cause = error.__cause__ or error
    found = getattr(cause, "verify_message", None) or getattr(cause, "reason", None) or str(cause)
    return str(found).replace("_", " ").lower()
