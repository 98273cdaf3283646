"""Producer ids are given out once, even if the metadata store fails."""

from random import Random

import pytest
import trio

from coordinator.errors import MetadataUnavailable
from coordinator.metadata.unlogged_nodes import encode_cluster, encode_producer_ids
from coordinator.metadata_store import paths
from coordinator.metadata_store.store import Create, Put
from coordinator.testing.fakes import FakeEnsemble, Faults
from coordinator.transactions.producer_ids import BLOCK_SIZE, ProducerIds


async def ensemble_of_a_cluster(random: Random | None = None, faults: Faults | None = None) -> FakeEnsemble:
    ensemble = FakeEnsemble(random)
    await ensemble.connect().multi([Create(paths.CLUSTER, encode_cluster("c"))])
    ensemble.faults = faults or Faults()
    return ensemble


async def test_ids_count_up_and_a_restart_skips_the_rest_of_a_block() -> None:
    ensemble = await ensemble_of_a_cluster()
    first = ProducerIds(ensemble.connect())
    assert [await first.next_id() for _ in range(3)] == [0, 1, 2]
    again = ProducerIds(ensemble.connect())
    assert await again.next_id() == BLOCK_SIZE
    assert await first.next_id() == 3


async def test_brokers_never_share_an_id_and_use_up_their_blocks() -> None:
    ensemble = await ensemble_of_a_cluster()
    brokers = [ProducerIds(ensemble.connect()) for _ in range(3)]
    given: list[int] = []

    async def take(ids: ProducerIds) -> None:
        for _ in range(BLOCK_SIZE + 10):
            next_id = await ids.next_id()
            given.append(next_id)

    async with trio.open_nursery() as nursery:
        for ids in brokers:
            nursery.start_soon(take, ids)
            nursery.start_soon(take, ids)
    assert len(given) == len(set(given)) == 6 * (BLOCK_SIZE + 10)


@pytest.mark.parametrize("seed", range(20))
async def test_a_store_that_loses_replies_costs_blocks_and_never_gives_an_id_twice(seed: int) -> None:
    ensemble = await ensemble_of_a_cluster(Random(seed), Faults(request_lost=0.2, reply_lost=0.4, replica_lags=0.3))
    given: list[int] = []
    for _ in range(20):
        try:
            given.append(await ProducerIds(ensemble.connect()).next_id())
        except MetadataUnavailable:
            continue
    assert len(given) == len(set(given)) > 0


async def test_a_node_of_another_format_is_not_guessed_at() -> None:
    ensemble = FakeEnsemble()
    store = ensemble.connect()
    await store.multi([Create(paths.PRODUCER_IDS, b'{"v": 2, "next_id": 0}')])
    with pytest.raises(MetadataUnavailable, match="format 2"):
        await ProducerIds(store).next_id()


async def test_a_store_without_a_cluster_gives_out_no_ids() -> None:
    """The store was wiped: the cluster's brokers have given out the first ids long ago."""
    store = FakeEnsemble().connect()
    with pytest.raises(MetadataUnavailable):
        await ProducerIds(store).next_id()
    assert not await store.exists(paths.PRODUCER_IDS)


async def test_a_store_that_was_rolled_back_gives_no_id_out_twice() -> None:
    store = (await ensemble_of_a_cluster()).connect()
    ids = ProducerIds(store)
    given = [await ids.next_id() for _ in range(BLOCK_SIZE)]
    node = await store.get(paths.PRODUCER_IDS)
    await store.multi([Put(paths.PRODUCER_IDS, encode_producer_ids(given[-1]), node.version)])
    with pytest.raises(MetadataUnavailable):
        await ids.next_id()
