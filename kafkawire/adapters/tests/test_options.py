"""What the configuration says to the parts that do not know it."""

from __future__ import annotations

import math

import pytest

from kafkawire.adapters.options import coordinator_settings
from kafkawire.config.broker_config import load

enforces = pytest.mark.enforces


async def nobody(_broker: object) -> bool:
    return False


@enforces("auto.leader.rebalance.enable")
@enforces("leader.imbalance.check.interval.seconds")
def test_how_often_leaders_go_back() -> None:
    for given, expected_s in [
        ({}, 300),
        ({"leader.imbalance.check.interval.seconds": "20"}, 20),
        ({"auto.leader.rebalance.enable": "false"}, math.inf),
    ]:
        config, _ = load(given)
        assert coordinator_settings(config, (), nobody, lambda: None).prefer_interval_s == expected_s


def test_a_broker_alone_asks_no_other_whether_it_lives() -> None:
    assert coordinator_settings(load({})[0], (), nobody, lambda: None).is_refused is None
