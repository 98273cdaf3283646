"""The exercise of sarama, built with one version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compat_tests.harness.requirements import need_command
from compat_tests.harness.sources import built
from compat_tests.harness.tools import run
from compat_tests.harness.versions import client

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker


def exercise(broker: Broker, topic: str, name: str, age: str, manifest: str) -> str:
    """Run the exercise with the client `name` of versions.toml; returns its output. `manifest`: file of its modules."""
    go = need_command("go", "install Go 1.26 or newer")
    place = built("sarama", client(name), age, [go, "build", f"-modfile={manifest}", "-o", "exercise", "."])
    return run([str(place / "exercise"), broker.bootstrap, topic], timeout_s=120)
