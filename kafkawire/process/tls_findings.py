"""Problems of a broker with the protection of its listeners: certificates, their dates, and listeners without any."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from kafkawire.adapters.tls import open_tls
from kafkawire.config.security.listener_keys import ListenerValues
from kafkawire.config.values import ConfigError
from kafkawire.process.doctor import Finding, Severity, is_loopback
from kafkawire.security.tls.settings import ClientAuth, TlsRefused

if TYPE_CHECKING:
    from kafkawire.config.broker_config import Config
    from kafkawire.security.tls.listener_tls import ListenerTls

SOON: Final = timedelta(days=30)


def examine_tls(config: Config, now: datetime | None = None) -> Iterator[Finding]:
    """Findings about the listeners. Reads the files of their stores."""
    moment = now or datetime.now(UTC)
    try:
        opened = open_tls(config, lambda: moment)
    except (ConfigError, TlsRefused) as error:
        yield Finding(Severity.PROBLEM, "TLS", str(error), "a broker does not start with it")
        opened = {}
    for name, tls in opened.items():
        yield from _certificate(name, tls, moment)
    for listener in config.listeners:
        if listener.name not in config.tls_listeners:
            if not is_loopback(listener.host):
                yield Finding(
                    Severity.WARNING, f"listener {listener.name}",
                    "it is not encrypted, and asks no client for its name",
                    "bind it to a loopback address, or see docs/security.md",
                )  # fmt: skip
        elif ListenerValues(config.given, listener.name)["ssl.client.auth"] == ClientAuth.REQUESTED.value:
            yield Finding(
                Severity.WARNING, f"listener {listener.name}",
                "ssl.client.auth=requested: a client without a certificate is User:ANONYMOUS",
                "set it to required when every client has one",
            )  # fmt: skip


def _certificate(name: str, tls: ListenerTls, now: datetime) -> Iterator[Finding]:
    expires = datetime.fromtimestamp(tls.current.expires_s, UTC)
    if expires - now < SOON:
        yield Finding(
            Severity.WARNING, f"listener {name}",
            f"its certificate expires on {expires:%Y-%m-%d %H:%M} UTC",
            "write a new one over it; the broker loads it without a restart",
        )  # fmt: skip
    if not tls.current.alternative_names:
        yield Finding(
            Severity.WARNING, f"listener {name}",
            f"its certificate has no alternative names, only the subject {tls.current.subject}",
            "clients check the names of hosts; most of them look at alternative names alone",
        )  # fmt: skip
