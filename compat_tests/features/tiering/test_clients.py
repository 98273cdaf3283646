"""Stock clients read a topic from offset 0 across tiers: it is written, copied, dropped then, the broker killed."""

from __future__ import annotations

import logging
import random
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from compat_tests.features.tiering import readers
from compat_tests.features.tiering.test_tiers import TOPIC
from compat_tests.features.tiering.tiers import QUICK, tier
from compat_tests.features.tiering.traffic import SEED, THREADS, WITHIN_S, ReaderRecords, Traffic
from compat_tests.harness.kafkawire_broker import Kafkawire

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from pathlib import Path

    from compat_tests.harness.broker import Broker

    Reader = Callable[[Broker, str, ReaderRecords, Path], None]

CALM_MAX_S = 1.5
SMALL_CACHE = {"tier.cache.size.bytes": str(4 << 20)}  # chunks of one reader are evicted before another one reads them


@pytest.fixture
def leaky_client(caplog: pytest.LogCaptureFixture) -> None:
    """kafka-python leaves a socket to the garbage collector if a connection is refused; its log records reference
    them."""
    caplog.set_level(logging.CRITICAL, "kafka")


@pytest.mark.usefixtures("leaky_client")
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize(
    ("kind", "clients"),
    [
        ("directory", (readers.java, readers.librdkafka, readers.kafka_python, readers.aiokafka)),
        ("s3", (readers.librdkafka, readers.kafka_python)),
    ],
)
def test_every_record_is_read_once(kind: str, clients: tuple[Reader, ...], tmp_path: Path) -> None:
    """The broker is killed soon after each reader has begun."""
    print(f"KAFKAWIRE_CHAOS_SEED={SEED}")
    choice = random.Random(SEED)
    with ExitStack() as stack:
        remote = stack.enter_context(tier(kind, tmp_path))
        broker = stack.enter_context(Kafkawire(tmp_path, {**QUICK, **remote.given, **SMALL_CACHE}))
        pool = stack.enter_context(ThreadPoolExecutor(THREADS))
        traffic = stack.enter_context(Traffic(broker, TOPIC, pool))
        reading: list[tuple[ReaderRecords, Future[None]]] = []
        for read in clients:
            seen = ReaderRecords(traffic.history)
            reading.append((seen, pool.submit(read, broker, TOPIC, seen, tmp_path)))
            assert seen.has_started.wait(WITHIN_S), f"{read.__name__} finds nothing"
            time.sleep(choice.uniform(0, CALM_MAX_S))
            traffic.kill()
        traffic.complete()
        for seen, ended in reading:
            ended.result(WITHIN_S)
            seen.check()
