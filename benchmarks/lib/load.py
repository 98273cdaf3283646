"""The wire load (`kafkawire.client.load`) on a broker of this machine."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kafkawire.client.connection import Address
from kafkawire.client.load import Load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkawire.client.load import Measured, Requests


def run_load(port: int, requests: Sequence[Requests], in_flight: int, seconds: float = math.inf) -> Measured:
    """Run a load with one connection per entry of `requests`, until all are answered or time is up. Raises
    LoadFailed."""
    address = Address("127.0.0.1", port)
    return Load(in_flight).run(((address, each) for each in requests), seconds)
