"""A broker that allows short session time-outs, one JVM for the Java members, and a group for each test."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from compat_tests.features.groups.members import Party, java_host
from compat_tests.harness.target import target_broker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from compat_tests.harness.broker import Broker
    from compat_tests.harness.host import Host

QUICK_GROUPS = {"group.min.session.timeout.ms": "1000", "group.initial.rebalance.delay.ms": "0"}


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker for all groups of the run."""
    with target_broker(tmp_path_factory.mktemp("groups"), QUICK_GROUPS) as running:
        yield running


@pytest.fixture(scope="session")
def java() -> Iterator[Callable[[], Host]]:
    """Starts the JVM when the first test needs it."""
    hosts: list[Host] = []

    def host() -> Host:
        if not hosts:
            hosts.append(java_host())
        return hosts[0]

    yield host
    for each in hosts:
        each.kill()


@pytest.fixture
def party(
    broker: Broker, topic: str, java: Callable[[], Host], request: pytest.FixtureRequest
) -> Iterator[Callable[..., Party]]:
    """A factory of parties: `party(client)` subscribes to the topic, `party(client, pattern=...)` to all matching
    topics."""
    with ExitStack() as parties:

        def make(client: str, *, pattern: str = "") -> Party:
            topics = () if pattern else (topic,)
            return parties.enter_context(
                Party(broker, client, f"group-of-{topic}", *topics, pattern=pattern, java=java)
            )

        yield make
