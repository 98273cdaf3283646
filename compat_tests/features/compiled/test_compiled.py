"""Compiled modules (`make compiled`) pass the tests of their sources, run whole brokers, and serve a stock client."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import Consumer, Producer

from compat_tests.harness.kafkawire_broker import Kafkawire
from compat_tests.harness.requirements import COMPILED, need_compiled
from compat_tests.harness.tools import run
from tools.compile import MODULES

if TYPE_CHECKING:
    from pathlib import Path

TESTED: Final = (
    "engine",
    "kafkawire/fast_path",
    "kafkawire/fetching",
    "kafkawire/peers",
    "kafkawire/replication",
    "kafkawire/requests",
    "kafkawire/security",
    "kafkawire/server",
    "kafkawire/wire",
)
RECORDS: Final = 2_000


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(need_compiled()))


def test_every_compiled_module_is_imported_from_its_shared_object() -> None:
    names = [module.removesuffix(".py").replace("/", ".") for module in MODULES]
    code = "import importlib, json, sys; print(json.dumps([importlib.import_module(n).__file__ for n in sys.argv[1:]]))"
    files = json.loads(run([sys.executable, "-c", code, *names], directory=COMPILED))
    assert [name for name, file in zip(names, files, strict=True) if not file.endswith(".so")] == []


def test_they_pass_the_tests_of_their_sources() -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not sources and not fuzz",
        *TESTED,
    ]
    *_, last = run(command, timeout_s=800, directory=COMPILED).strip().splitlines()
    passed = int(last.split(" passed")[0].split()[-1])
    assert passed > 1_000, last


def test_a_simulated_broker_of_compiled_modules_survives_its_seeds() -> None:
    command = [sys.executable, "-m", "kafkawire.tests.simulation", "--seeds", "0:1000", "--jobs", "2"]
    run([*command, "--budget-s", "20"], timeout_s=120, directory=COMPILED)


def test_simulated_brokers_of_them_replicate_and_survive_their_seeds() -> None:
    command = [sys.executable, "-m", "kafkawire.tests.cluster_simulation", "--seeds", "0:1000", "--jobs", "2"]
    run([*command, "--budget-s", "20"], timeout_s=180, directory=COMPILED)


def test_a_stock_client_is_served(tmp_path: Path) -> None:
    with Kafkawire(tmp_path) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        for number in range(RECORDS):
            producer.produce("orders", str(number).encode(), partition=-1 if number % 2 else 0)
        assert producer.flush(30) == 0
        broker.stop()
        broker.start()
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["orders"])
        found: set[bytes | None] = set()
        while len(found) < RECORDS:
            message = consumer.poll(30)
            assert message is not None
            assert message.error() is None
            found.add(message.value())
        consumer.close()
        assert found == {str(number).encode() for number in range(RECORDS)}
