"""Java's client: its administrator, an idempotent producer with every codec, a group, and offsets by time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from compat_tests.harness.apache_kafka import QUICK_JVM
from compat_tests.harness.requirements import need_command, need_kafka_jars, need_oldest_kafka_jars
from compat_tests.harness.tools import run
from compat_tests.harness.versions import EACH_AGE

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker

SOURCE = str(Path(__file__).with_name("Exercise.java"))


@EACH_AGE
def test_kafka_clients(broker: Broker, topic: str, age: str) -> None:
    jars = need_kafka_jars() if age == "newest" else need_oldest_kafka_jars()
    need_command("javac", "install a JDK, 17 or newer")
    java = ["java", "-Xmx256m", *QUICK_JVM, "-cp", f"{jars}/*", SOURCE]
    assert run([*java, broker.bootstrap, topic], timeout_s=90) == "done\n"
