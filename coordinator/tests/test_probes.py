"""A broker that refuses twice after it was reached is gone; no other one is."""

from __future__ import annotations

from coordinator.api import BrokerInfo, BrokerState, ClusterImage
from coordinator.controller.probes import Probes

ME = 1


def image_of(*brokers: BrokerInfo, controller_id: int = ME) -> ClusterImage:
    return ClusterImage(1, "c", members={one.broker_id: one for one in brokers}, controller_id=controller_id)


class Network:
    """The brokers that refuse now, and the brokers that were asked."""

    def __init__(self) -> None:
        self.refusing: set[int] = set()
        self.asked: list[int] = []

    async def is_refused(self, broker: BrokerInfo) -> bool:
        self.asked.append(broker.broker_id)
        return broker.broker_id in self.refusing


TWO = BrokerInfo(2, (), incarnation=b"2" * 16)
IMAGE = image_of(BrokerInfo(ME, ()), TWO)


async def test_two_refusals_in_a_row_say_that_a_process_is_gone() -> None:
    network = Network()
    probes = Probes(network.is_refused)
    assert not await probes.probe(IMAGE, ME)
    network.refusing = {2}
    assert not await probes.probe(IMAGE, ME)
    network.refusing = set()
    assert not await probes.probe(IMAGE, ME)
    network.refusing = {2}
    assert not await probes.probe(IMAGE, ME)
    assert probes.gone(IMAGE) == set()
    assert await probes.probe(IMAGE, ME)
    assert probes.gone(IMAGE) == {2}
    assert not await probes.probe(IMAGE, ME), "it is no news"


async def test_a_broker_that_is_gone_stays_gone_while_it_is_probed_again() -> None:
    network, gone = Network(), list[set[int]]()
    probes = Probes(network.is_refused)
    await probes.probe(IMAGE, ME)

    async def is_refused(_: BrokerInfo) -> bool:
        gone.append(probes.gone(IMAGE))
        return True

    probes._is_refused = is_refused
    for _ in range(3):
        await probes.probe(IMAGE, ME)
    assert gone == [set(), set(), {2}]


async def test_a_broker_that_was_never_reached_is_not_gone() -> None:
    network = Network()
    network.refusing = {2}
    probes = Probes(network.is_refused)
    for _ in range(5):
        assert not await probes.probe(IMAGE, ME)
    assert probes.gone(IMAGE) == set()


async def test_another_life_of_the_broker_is_not_gone_with_the_one_before() -> None:
    network = Network()
    probes = Probes(network.is_refused)
    await probes.probe(IMAGE, ME)
    network.refusing = {2}
    for _ in range(2):
        await probes.probe(IMAGE, ME)
    assert probes.gone(image_of(BrokerInfo(2, (), incarnation=b"3" * 16))) == set()


async def test_neither_oneself_nor_the_fenced_are_asked() -> None:
    network = Network()
    fenced = BrokerInfo(3, (), state=BrokerState.FENCED)
    await Probes(network.is_refused).probe(image_of(BrokerInfo(ME, ()), TWO, fenced), ME)
    assert network.asked == [2]


async def test_a_broker_that_is_not_the_controller_probes_only_the_controller() -> None:
    network = Network()
    three = BrokerInfo(3, (), incarnation=b"3" * 16)
    await Probes(network.is_refused).probe(image_of(BrokerInfo(ME, ()), TWO, three, controller_id=3), ME)
    assert network.asked == [3]


async def test_a_broker_that_refused_once_is_a_suspect_until_the_next_look() -> None:
    network = Network()
    probes = Probes(network.is_refused)
    for refusing, has_suspects in (({}, False), ({2}, True), ({}, False), ({2}, True), ({2}, False)):
        network.refusing = {*refusing}
        await probes.probe(IMAGE, ME)
        assert probes.has_suspects is has_suspects
