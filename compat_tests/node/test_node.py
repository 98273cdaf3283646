"""kafkajs: an idempotent producer and one that is not, a group, and what an administrator asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compat_tests.harness.requirements import need_command
from compat_tests.harness.sources import BUILT_WITHIN_S, workspace
from compat_tests.harness.tools import run
from compat_tests.harness.versions import EACH_AGE, client

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker


@EACH_AGE
def test_kafkajs(broker: Broker, topic: str, age: str) -> None:
    node, npm = (need_command(name, "install Node 18 or newer") for name in ("node", "npm"))
    place = workspace("node", client("kafkajs"), age)
    install = [npm, "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"]
    run(install, directory=place, timeout_s=BUILT_WITHIN_S)
    assert run([node, str(place / "exercise.js"), broker.bootstrap, topic], timeout_s=90) == "done\n"
