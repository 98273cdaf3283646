"""Writer of numbered values to one partition, by librdkafka, until stdin ends.

It prints a JSON document for each acknowledged record, with the time by a clock that all processes share.

Arguments: broker, topic, partition, name of the writer, records per second.
"""

from __future__ import annotations

import json
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from compat_tests.faults.history import History
from compat_tests.faults.writers import ConfluentWriter

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker


class PrintedHistory(History):
    """A history that prints the acknowledgements and stores none."""

    def ack(self, partition: int, offset: int, value: str) -> None:
        print(json.dumps({"acked": [partition, offset, value], "at_s": time.monotonic()}), flush=True)


def main() -> None:
    bootstrap, topic, partition, name, records_per_s = sys.argv[1:]
    broker = cast("Broker", SimpleNamespace(bootstrap=bootstrap))
    pause_s = 1 / float(records_per_s)
    writer = ConfluentWriter(name, broker, topic, 1, PrintedHistory(), pause_s, first=int(partition), at_once=1)
    writer.start()
    sys.stdin.read()
    writer.finish()
    print(json.dumps({"ended": name}), flush=True)


if __name__ == "__main__":
    main()
