"""Certificates in the metrics and in the health of the cluster."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import trio

from kafkawire.config.tests.test_tls_enforced import opened, pem, secure
from kafkawire.http.tests.test_alerts import condition
from kafkawire.http.tests.test_metrics import scraped
from kafkawire.server.loop_watch import LoopWatch
from kafkawire.testing import EPOCH_MS, OpenBroker, open_broker
from testkit.asgi import get_response
from testkit.certificates import Authority

EXPIRY, FAILURES = "kafkawire_tls_certificate_expiry_seconds", "kafkawire_tls_reload_failures_total"
HANDSHAKES = "kafkawire_tls_handshakes_total"
HOUR_S, WEEK_S = 3600, 7 * 86_400


async def metrics(broker: OpenBroker) -> dict[str, Any]:
    return await scraped(broker.broker.http_app(LoopWatch()))


async def reasons(broker: OpenBroker) -> list[str]:
    _, body = await get_response(broker.broker.http_app(LoopWatch()), "/health/cluster")
    found: list[str] = json.loads(body)["reasons"]
    return found


async def test_a_certificate_that_expires_soon(authority: Authority) -> None:
    assert condition("KafkawireCertificateExpires") == f"{EXPIRY} < 7 * 86400"
    async with opened(store(authority, days=7, hours=1)) as broker:
        [(labels, left_s)] = (await metrics(broker))[EXPIRY]
        assert labels == {"listener": "SSL"}
        assert WEEK_S < left_s <= WEEK_S + HOUR_S
        assert await reasons(broker) == []
        await trio.sleep(2 * HOUR_S)
        assert WEEK_S - HOUR_S - 10 < (await metrics(broker))[EXPIRY][0][1] < WEEK_S
        assert await reasons(broker) == ["the certificate of listener SSL expires in 167 hours"]


async def test_a_certificate_that_has_expired(authority: Authority) -> None:
    async with opened(store(authority, hours=1)) as broker:
        await trio.sleep(2 * HOUR_S)
        assert (await metrics(broker))[EXPIRY][0][1] < 0
        assert await reasons(broker) == ["the certificate of listener SSL has expired"]


def store(authority: Authority, **life: float) -> dict[str, str]:
    """The keys of a listener whose certificate expires so long after the start of the broker."""
    expires = datetime.fromtimestamp(EPOCH_MS / 1000, UTC) + timedelta(**life)
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.key_file(authority.issue(expires=expires))),
    }


async def test_a_certificate_that_cannot_be_loaded(authority: Authority) -> None:
    assert condition("KafkawireCertificateNotReloaded") == f"increase({FAILURES}[10m]) > 0"
    async with opened(pem(authority)) as broker:
        await secure(broker, authority)
        found = await metrics(broker)
        assert (found[FAILURES][0][1], found[HANDSHAKES][0][1]) == (0, 1)
        path = authority.write("server.pem", b"")
        broker.broker.tls.reload_soon()
        await trio.sleep(0.1)
        assert (await metrics(broker))[FAILURES][0][1] == 1
        [reason] = await reasons(broker)
        assert reason.startswith(f"listener SSL keeps its old certificate: {path}: there is no private key")
        authority.key_file()
        broker.broker.tls.reload_soon()
        await trio.sleep(0.1)
        assert await reasons(broker) == []


async def test_a_broker_without_tls() -> None:
    async with open_broker() as broker:
        found = await metrics(broker)
        assert not found.get(EXPIRY)
        assert found[FAILURES] == [({}, 0)]
