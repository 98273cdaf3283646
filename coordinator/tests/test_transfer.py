"""Export of a cluster's metadata from one store, and import into another."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING

import pytest
import trio

from coordinator.api import (
    CLUSTER_DEFAULT,
    TRANSACTION_VERSION,
    BrokerEndpoint,
    ConfigChange,
    ConfigOperation,
    FeatureUpdate,
    UpgradeType,
)
from coordinator.cluster_manager import ClusterManager, ClusterManagerSettings
from coordinator.errors import CannotStart, TransferRefused
from coordinator.metadata.history_nodes import decode_history
from coordinator.metadata_store import paths
from coordinator.metadata_store.embedded import open_embedded
from coordinator.metadata_store.store import ConnectionLost, Create
from coordinator.requests.topics import TopicDefaults
from coordinator.testing.fakes import FakeEnsemble, FakeHost, FakeValidator, run_inline
from coordinator.testing.simulated_metadata_store import Loss
from coordinator.transfer.export_format import Export, ExportedNode, decode_export, encode_export
from coordinator.transfer.transfer import export_metadata, import_metadata

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from coordinator.api import ClusterImage
    from coordinator.metadata_store.store import MetadataStore

SMALL = Export("id", (ExportedNode("/a", 3, b'{"v":1,"x":"\xc3\xa9"}'), ExportedNode("/a/b", 0, b"")))


@asynccontextmanager
async def alone(store: MetadataStore, seed: int = 0) -> AsyncIterator[ClusterManager]:
    """A broker that stands alone, for one process."""
    settings = ClusterManagerSettings(1, (BrokerEndpoint("PLAINTEXT", "host", 9_092),), defaults=TopicDefaults(3))
    host = FakeHost()
    host.log_dirs = ("disk",)
    coordinator = ClusterManager(store, host, FakeValidator(), settings, Random(seed))
    try:
        await coordinator.start()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(coordinator.run)
            yield coordinator
            nursery.cancel_scope.cancel()
    finally:
        await store.close()


async def cluster(store: MetadataStore) -> tuple[ClusterImage, int]:
    """Make a cluster that has everything; return its image, and a producer id that was given out."""
    async with alone(store) as coordinator:
        for name in ("a", "b"):
            await coordinator.create_topic(name, partition_count=700, configs={"retention.ms": "5"})
        change = ConfigChange(ConfigOperation.SET, "log.retention.ms", "7")
        await coordinator.alter_broker_configs(CLUSTER_DEFAULT, [change])
        for level, how in ((1, UpgradeType.SAFE_DOWNGRADE), (2, UpgradeType.UPGRADE)):
            await coordinator.update_features([FeatureUpdate(TRANSACTION_VERSION, level, how)])
        assert await coordinator.tier.claim("s3://bucket", is_used=False) == 0
        return coordinator.image, await coordinator.new_producer_id()


async def exported(store: MetadataStore) -> tuple[Export, str]:
    return decode_export(encode_export(await export_metadata(store)))


async def test_a_broker_goes_on_with_its_cluster_in_another_store(tmp_path: Path) -> None:
    before, producer_id = await cluster(await open_embedded(tmp_path, run_inline))
    store = await open_embedded(tmp_path, run_inline)
    export, digest = await exported(store)
    await store.close()
    ensemble = FakeEnsemble()
    await import_metadata(ensemble.connect(), export, digest)
    async with alone(ensemble.connect(), seed=1) as coordinator:
        after = coordinator.image
        assert after.cluster_id == before.cluster_id
        assert after.topics.keys() == before.topics.keys()
        for name, topic in before.topics.items():
            assert (after.topics[name].topic_id, after.topics[name].configs) == (topic.topic_id, topic.configs)
            epochs = [state.leader_epoch for state in topic.partitions]
            assert [state.leader_epoch for state in after.topics[name].partitions] == [one + 1 for one in epochs]
        assert after.members[1].epoch == before.members[1].epoch + 1
        assert after.controller_epoch == before.controller_epoch + 1
        assert after.broker_configs == before.broker_configs
        assert (after.features, after.features_epoch) == (before.features, before.features_epoch)
        assert await coordinator.new_producer_id() > producer_id
        with pytest.raises(CannotStart, match="the segments of this cluster are in s3://bucket"):
            await coordinator.tier.claim("s3://other", is_used=True)


async def test_no_broker_starts_on_an_unfinished_import_and_the_same_import_finishes_it() -> None:
    source = FakeEnsemble()
    await cluster(source.connect())
    export, digest = await exported(source.connect())
    whole = FakeEnsemble()
    await import_metadata(whole.connect(), export, digest)
    steps = len(whole.history)
    assert steps == 4  # the first, two of nodes, the last
    for done in range(1, steps):
        ensemble = FakeEnsemble()
        store = ensemble.connect()
        store.script.extend([*[Loss.NOTHING] * (done - 1), Loss.REPLY_AND_LINE])
        with pytest.raises(ConnectionLost):
            await import_metadata(store, export, digest)
        with pytest.raises(CannotStart, match="an import, or a restoration, was not finished"):
            async with alone(ensemble.connect()):
                pass
        with pytest.raises(TransferRefused, match="an unfinished import of another file"):
            await import_metadata(ensemble.connect(), export, "0" * 64)
        await import_metadata(ensemble.connect(), export, digest)
        assert await export_metadata(ensemble.connect()) == await export_metadata(whole.connect())


async def test_an_import_writes_the_exported_nodes_in_a_new_history() -> None:
    source, target = FakeEnsemble(), FakeEnsemble()
    await cluster(source.connect())
    export, digest = await exported(source.connect())
    await import_metadata(target.connect(), export, digest)
    again = await export_metadata(target.connect())
    values = {node.path: node.value for node in again.nodes}
    history = decode_history(paths.HISTORY, values.pop(paths.HISTORY))
    assert values == {node.path: node.value for node in export.nodes}
    assert (history.generation, history.first_change) == (1, 0)  # no broker takes the smaller numbers for a rollback


@pytest.mark.parametrize(
    ("path", "text"), [(paths.CLUSTER, "has a cluster; an import needs"), ("/config", "has other nodes: config;")]
)
async def test_a_store_that_has_something_is_refused(path: str, text: str) -> None:
    ensemble = FakeEnsemble()
    await ensemble.connect().multi([Create(path, b"")])
    with pytest.raises(TransferRefused, match=text):
        await import_metadata(ensemble.connect(), SMALL, "0" * 64)
    assert len(ensemble.history) == 1


async def test_nothing_is_taken_out_while_a_broker_runs() -> None:
    ensemble = FakeEnsemble()
    async with alone(ensemble.connect()):
        with pytest.raises(TransferRefused, match="stop the brokers first, and wait for their sessions to end: 1"):
            await export_metadata(ensemble.connect())
    assert (await export_metadata(ensemble.connect())).cluster_id


async def test_a_store_without_a_cluster_has_nothing_to_take_out() -> None:
    with pytest.raises(TransferRefused, match="has no cluster"):
        await export_metadata(FakeEnsemble().connect())


async def test_nodes_of_another_version_are_refused_before_anything_is_put_in() -> None:
    ensemble = FakeEnsemble()
    with pytest.raises(CannotStart, match="/topics/a has the format 2"):
        await import_metadata(ensemble.connect(), Export("id", (ExportedNode("/topics/a", 0, b'{"v":2}'),)), "0" * 64)
    assert ensemble.history == []


def test_the_file_is_lines_of_json_with_a_checksum() -> None:
    content = encode_export(SMALL)
    *lines, last = content.decode().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"export": "kafkawire metadata", "v": 1, "cluster_id": "id", "nodes": 2},
        {"path": "/a", "version": 3, "value": {"v": 1, "x": "é"}},
        {"path": "/a/b", "version": 0},
    ]
    export, digest = decode_export(content)
    assert (export.cluster_id, list(export.nodes)) == ("id", list(SMALL.nodes))
    assert json.loads(last) == {"sha256": digest}


def test_a_value_with_line_ends_is_one_line() -> None:
    spread = Export("id", (ExportedNode("/a", 0, b'{\n  "v": 1\n}'),))
    assert decode_export(encode_export(spread))[0].nodes[0].value == b'{"v":1}'


def test_a_file_that_is_damaged_anywhere_is_refused() -> None:
    content = encode_export(SMALL)
    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= 1
        with pytest.raises(TransferRefused):
            decode_export(bytes(changed))
        with pytest.raises(TransferRefused):
            decode_export(content[:position])
    with pytest.raises(TransferRefused):
        decode_export(content + content)


def test_a_file_of_another_version_is_named() -> None:
    later = encode_export(SMALL).replace(b'"v":1,"cluster_id"', b'"v":2,"cluster_id"')
    with pytest.raises(TransferRefused, match="has the format kafkawire metadata 2; this version knows"):
        decode_export(later)


def test_a_node_that_is_no_json_is_damage() -> None:
    with pytest.raises(TransferRefused, match="the metadata node /a is damaged"):
        encode_export(Export("id", (ExportedNode("/a", 0, b"{"),)))
