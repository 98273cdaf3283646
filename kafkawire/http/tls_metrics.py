"""Certificates of listeners at `/metrics` and `/health/cluster`: their expiry, and reloads that failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from kafkawire.http.exposition import text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client.core import Metric

SOON_S: Final = 7 * 86_400  # a certificate that expires earlier is an ailment


class WatchedTls(Protocol):
    """TLS of the listeners, as far as it is watched."""

    @property
    def expiries(self) -> Mapping[str, float]:
        """Ends of the certificates by listener name, in seconds since 1970."""
        ...

    @property
    def problems(self) -> Mapping[str, str]:
        """Why the last reload of a listener's certificate failed, by listener name."""
        ...

    @property
    def reloads_failed(self) -> int: ...


@dataclass(frozen=True, slots=True)
class TlsMetrics:
    """Metrics of TLS. `handshakes` counts those that have succeeded; failed ones are closed connections."""

    tls: WatchedTls
    handshakes: Callable[[], int]
    now_ms: Callable[[], int]

    def ailments(self) -> Iterator[str]:
        """Problems that an operator should check."""
        for name, left_s in self._left_s():
            if left_s < 0:
                yield f"the certificate of listener {name} has expired"
            elif left_s < SOON_S:
                yield f"the certificate of listener {name} expires in {left_s / 3600:.0f} hours"
        for name, reason in self.tls.problems.items():
            yield f"listener {name} keeps its old certificate: {reason}"

    def portions(self) -> Iterator[bytes]:
        """The text, in one piece."""
        yield text_of([*self._metrics()])

    def _metrics(self) -> Iterator[Metric]:
        text = "Seconds until the certificate of a listener expires."
        expiry = GaugeMetricFamily("kafkawire_tls_certificate_expiry_seconds", text, labels=["listener"])
        for name, left_s in self._left_s():
            expiry.add_metric([name], left_s)
        yield expiry
        text = "Changed certificates that could not be loaded."
        yield CounterMetricFamily("kafkawire_tls_reload_failures", text, self.tls.reloads_failed)
        yield CounterMetricFamily("kafkawire_tls_handshakes", "Completed handshakes of TLS.", self.handshakes())

    def _left_s(self) -> Iterator[tuple[str, float]]:
        now_s = self.now_ms() / 1000
        for name, expires_s in self.tls.expiries.items():
            yield name, expires_s - now_s
