"""Quarkus: a stage with a dead-letter topic, and a stage that books its input in transactions with its offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compat_tests.applications.framework_records import read_values, write
from compat_tests.clients.confluent.clients import create_topic
from compat_tests.harness.apache_kafka import QUICK_JVM
from compat_tests.harness.requirements import need_quarkus
from compat_tests.harness.tools import running

if TYPE_CHECKING:
    from pathlib import Path

    from compat_tests.harness.broker import Broker

COUNT = 200
BAD = range(5, COUNT, 40)


def test_good_orders_are_booked_once_and_bad_ones_are_dead(broker: Broker, topic: str, tmp_path: Path) -> None:
    for name in (topic, f"{topic}-dead", f"{topic}-checked", f"{topic}-booked"):
        create_topic(broker, name, 3)
    orders = write(broker, topic, (f"{'bad' if number in BAD else 'good'} {number}" for number in range(COUNT)))
    good = [order for order in orders if order.startswith("good")]
    properties = {"kafka.bootstrap.servers": broker.bootstrap, "orders.topic": topic}
    settings = [f"-D{name}={value}" for name, value in properties.items()]
    with running(tmp_path / "log", ["java", "-Xmx512m", *QUICK_JVM, *settings, "-jar", str(need_quarkus())]):
        booked = read_values(broker, f"{topic}-booked", len(good))
        dead = read_values(broker, f"{topic}-dead", len(BAD))
    assert booked == sorted(f"booked {order}" for order in good)
    assert dead == sorted(f"bad {number}" for number in BAD)
