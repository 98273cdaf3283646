"""kafka-go: every codec, a group, offsets by time, and requests of an administrator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compat_tests.harness.requirements import need_command
from compat_tests.harness.sources import built
from compat_tests.harness.tools import run
from compat_tests.harness.versions import client

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker


def test_kafka_go(broker: Broker, topic: str) -> None:
    go = need_command("go", "install Go 1.23.8 or newer")
    place = built("kafka_go", client("kafka-go"), "newest", [go, "build", "-o", "exercise", "."])
    assert run([str(place / "exercise"), broker.bootstrap, topic], timeout_s=120) == "done\n"
