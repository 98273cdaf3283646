"""Ways to end a broker and to start it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compat_tests.harness.broker import IN_ORDER

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker


def restart(broker: Broker, *, orderly: bool) -> None:
    if orderly:
        code = broker.stop()
        assert code in IN_ORDER, f"stopped with {code}"
    else:
        broker.kill()
    broker.start()
