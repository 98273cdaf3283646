"""rskafka: every codec, offsets by time, DeleteRecords."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compat_tests.harness.requirements import need_command
from compat_tests.harness.sources import built
from compat_tests.harness.tools import run
from compat_tests.harness.versions import EACH_AGE, client

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker

FEATURES = {"newest": (), "oldest": ("--no-default-features",)}


@EACH_AGE
def test_rskafka(broker: Broker, topic: str, age: str) -> None:
    cargo = need_command("cargo", "install Rust 1.75 or newer")
    place = built("rust", client("rskafka"), age, [cargo, "build", "--quiet", *FEATURES[age]])
    assert run([str(place / "target" / "debug" / "exercise"), broker.bootstrap, topic], timeout_s=90) == "done\n"
