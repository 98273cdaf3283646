"""franz-go: every codec, a group, and requests of an administrator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compat_tests.harness.requirements import need_command
from compat_tests.harness.sources import built
from compat_tests.harness.tools import run
from compat_tests.harness.versions import EACH_AGE, client

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker

MODULES = {"newest": "go.mod", "oldest": "oldest.mod"}


@EACH_AGE
def test_franz_go(broker: Broker, topic: str, age: str) -> None:
    go = need_command("go", "install Go 1.23.8 or newer")
    build = [go, "build", f"-modfile={MODULES[age]}", "-o", "exercise", "."]
    place = built("go", client("franz-go"), age, build)
    assert run([str(place / "exercise"), broker.bootstrap, topic], timeout_s=90) == "done\n"
