"""TLS of the listeners, from the broker's configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import structlog
import trio

from kafkawire.config.security.listener_keys import ListenerValues
from kafkawire.security.tls.configured import tls_settings
from kafkawire.security.tls.settings import TlsRefused, TlsSettings

if TYPE_CHECKING:
    from kafkawire.config.broker_config import Config
    from kafkawire.requests.context import Elsewhere
    from kafkawire.security.tls.listener_tls import ListenerTls

_log = structlog.get_logger(__name__)


def open_tls(config: Config, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Mapping[str, ListenerTls]:
    """TLS of the listeners that speak it, by listener name. Reads files. Raises ConfigError with a listener's key, and
    TlsRefused."""
    return {name: _open(name, tls_settings(ListenerValues(config.given, name)), now) for name in config.tls_listeners}


def _open(name: str, settings: TlsSettings, now: Callable[[], datetime]) -> ListenerTls:
    from kafkawire.security.tls.listener_tls import ListenerTls  # loads a library that TLS alone needs

    try:
        return ListenerTls(settings, now)
    except TlsRefused as error:
        raise TlsRefused(f"listener {name}: {error}") from None


class TlsListeners:
    """TLS of all listeners of a broker. `crypto` runs a job in the crypto thread."""

    def __init__(self, listeners: Mapping[str, ListenerTls], crypto: Elsewhere, interval_ms: int) -> None:
        self.listeners = listeners
        self.reloads_failed = 0
        self.problems: dict[str, str] = {}  # of the last reload, by listener name
        self._crypto = crypto
        self._interval_s = interval_ms / 1000
        self._asked = trio.Event()

    @property
    def expiries(self) -> Mapping[str, float]:
        """Ends of the certificates by listener name, in seconds since 1970."""
        return {name: tls.current.expires_s for name, tls in self.listeners.items()}

    def reload_soon(self) -> None:
        """Look for changed files now, not at the end of the interval."""
        self._asked.set()

    async def run(self) -> None:
        """Load changed files until cancelled. A listener whose files cannot be used keeps its certificate."""
        while True:
            with trio.move_on_after(self._interval_s):
                await self._asked.wait()
            self._asked = trio.Event()
            for name, tls in self.listeners.items():
                await self._reload(name, tls)

    async def _reload(self, name: str, tls: ListenerTls) -> None:
        try:
            is_new = await self._crypto(tls.reload)
        except TlsRefused as error:
            self.reloads_failed += 1
            self.problems[name] = str(error)
            _log.error("certificate not reloaded", listener=name, reason=str(error))
        else:
            self.problems.pop(name, None)
            if is_new:
                _log.info("certificate reloaded", listener=name, expires=_date(tls.current.expires_s))


def _date(moment_s: float) -> str:
    return datetime.fromtimestamp(moment_s, UTC).isoformat()
