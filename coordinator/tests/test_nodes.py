"""Node values: they are written as docs/formats/metadata.md says."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from coordinator.api import BrokerEndpoint, BrokerInfo, BrokerState, Extent, PartitionState, TopicInfo
from coordinator.errors import CannotStart
from coordinator.metadata import nodes, unlogged_nodes
from coordinator.metadata_store import paths

if TYPE_CHECKING:
    from collections.abc import Callable

ID = bytes(range(16))
STATE = PartitionState(
    leader=1,
    leader_epoch=7,
    isr=(1, 2),
    replicas=(1, 2),
    active_base_offset=100,
    log_start_offset=5,
    extents=(Extent(0, (3,)), Extent(100, (1, 2))),
    incarnation=ID,
)
BROKER = BrokerInfo(
    1, (BrokerEndpoint("PLAINTEXT", "host", 9_092),), "rack", ID, 3, BrokerState.LEAVING, ("dir",), version=8
)
CHANGE = nodes.Change(1, ID, (nodes.LoggedNode("/topics/a", 3, b'{"v":1}'),), ("/topics/b",))


def test_the_documented_form_of_a_partition_state() -> None:
    assert json.loads(nodes.encode_partition(STATE)) == {
        "v": 1,
        "leader": 1,
        "leader_epoch": 7,
        "incarnation": "000102030405060708090a0b0c0d0e0f",
        "isr": [1, 2],
        "active_base_offset": 100,
        "log_start_offset": 5,
        "extents": [[0, [3]], [100, [1, 2]]],
    }
    full = replace(
        STATE, elr=(3,), suspect_replicas=((3, 6, 90),), offline=(1,), adding=(4,), removing=(1,), last_known_leader=2
    )
    document = json.loads(nodes.encode_partition(replace(full, unclean_since=6)))
    assert {name: document[name] for name in document if name not in json.loads(nodes.encode_partition(STATE))} == {
        "elr": [3],
        "marks": [[3, 6, 90]],
        "offline": [1],
        "adding": [4],
        "removing": [1],
        "last_known_leader": 2,
        "unclean_since": 6,
    }


def test_the_documented_form_of_the_other_nodes() -> None:
    assert json.loads(unlogged_nodes.encode_cluster("id")) == {"v": 2, "cluster_id": "id"}
    assert json.loads(nodes.encode_member(BROKER)) == {
        "v": 1,
        "epoch": 3,
        "incarnation": ID.hex(),
        "state": "leaving",
        "endpoints": [["PLAINTEXT", "host", 9_092]],
        "rack": "rack",
        "log_dirs": ["dir"],
    }
    assert json.loads(unlogged_nodes.encode_alive(ID)) == {"v": 2, "incarnation": ID.hex()}
    assert json.loads(unlogged_nodes.encode_controller(1, 2)) == {"v": 1, "broker_id": 1, "epoch": 2}
    assert json.loads(nodes.encode_controller_epoch(1, 2)) == {"v": 1, "epoch": 2, "broker_id": 1}
    topic = TopicInfo("a", ID, (STATE,), {"retention.ms": "1"})
    assert json.loads(nodes.encode_topic(topic)) == {
        "v": 1,
        "topic_id": ID.hex(),
        "partition_count": 1,
        "configs": {"retention.ms": "1"},
    }
    assert json.loads(unlogged_nodes.encode_topic_partitions("a")) == {"v": 1, "topic": "a"}
    configs = {"": {"a.key": "1"}, "1": {}}
    assert json.loads(nodes.encode_broker_configs(configs)) == {"v": 1, "configs": configs}
    assert json.loads(nodes.encode_features({"transaction.version": 2})) == {
        "v": 1,
        "levels": {"transaction.version": 2},
    }
    assert json.loads(nodes.encode_change(CHANGE)) == {
        "v": 2,
        "writer": 1,
        "nonce": ID.hex(),
        "nodes": [["/topics/a", 3, {"v": 1}]],
        "deleted": ["/topics/b"],
    }


def test_written_nodes_are_read_back_unchanged() -> None:
    for state in (
        STATE,
        replace(STATE, elr=(3,), suspect_replicas=((3, 6, 90),), offline=(1,), adding=(4,), unclean_since=6),
    ):
        read = nodes.decode_partition("/p", 5, nodes.encode_partition(state))
        assert read == replace(state, version=5)
    assert nodes.decode_member("/members/1", 8, nodes.encode_member(BROKER)) == BROKER
    assert nodes.decode_change("/c", nodes.encode_change(CHANGE)) == CHANGE
    assert nodes.decode_features("/f", nodes.encode_features({"any": 0, "other": 7})) == {"any": 0, "other": 7}
    assert nodes.decode_broker_configs("/b", nodes.encode_broker_configs({"": {"k": "v"}})) == {"": {"k": "v"}}
    assert unlogged_nodes.decode_cluster("/cluster", unlogged_nodes.encode_cluster("id")) == ("id", True)
    assert unlogged_nodes.decode_controller("/controller", unlogged_nodes.encode_controller(1, 2)) == (1, 2)
    assert nodes.decode_controller_epoch("/e", nodes.encode_controller_epoch(1, 2)) == (1, 2)


def test_nodes_of_a_version_before_clusters_are_read() -> None:
    assert unlogged_nodes.decode_cluster("/cluster", b'{"v":1,"cluster_id":"id"}') == ("id", False)
    assert nodes.decode_controller_epoch("/e", b'{"v":1,"epoch":4}') == (-1, 4)


LATER = b'{"later":[{}],"v":1'


def test_fields_of_a_later_version_are_written_again() -> None:
    value = nodes.encode_partition(STATE).replace(b'{"v":1', LATER)
    state = nodes.decode_partition("/p", 0, value)
    assert replace(state, extra=b"") == STATE
    assert json.loads(nodes.encode_partition(state)) == json.loads(value)
    member = nodes.decode_member("/members/1", 0, nodes.encode_member(BROKER).replace(b'{"v":1', LATER))
    assert json.loads(nodes.encode_member(member))["later"] == [{}]
    topic = nodes.decode_topic("/t", nodes.encode_topic(TopicInfo("a", ID, ())).replace(b'{"v":1', LATER))
    assert b'"later":[{}]' in nodes.encode_topic(TopicInfo("a", ID, (), extra=topic.extra))


@pytest.mark.parametrize(
    ("path", "encode"),
    [
        (paths.CONTROLLER_EPOCH, lambda extra: nodes.encode_controller_epoch(1, 2, extra)),
        (paths.BROKER_CONFIGS, lambda extra: nodes.encode_broker_configs({}, extra)),
        (paths.FEATURES, lambda extra: nodes.encode_features({}, extra)),
    ],
)
def test_and_so_are_those_of_nodes_that_there_is_one_of(path: str, encode: Callable[[bytes], bytes]) -> None:
    extra = nodes.extra_of(path, encode(b"").replace(b'{"v":1', LATER))
    assert json.loads(encode(extra))["later"] == [{}]


def _partition(path: str, value: bytes) -> object:
    return nodes.decode_partition(path, 0, value)


def _member(path: str, value: bytes) -> object:
    return nodes.decode_member(path, 0, value)


@pytest.mark.parametrize(
    "decode",
    [
        _partition,
        _member,
        unlogged_nodes.decode_controller,
        nodes.decode_controller_epoch,
        nodes.decode_topic,
        nodes.decode_broker_configs,
        nodes.decode_features,
    ],
)
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b'{"v":2}', "the metadata node /n/1 has the format 2; this version knows 1 only"),
        (b'{"v":1}', "the metadata node /n/1 is damaged"),
        (b"{}", "the metadata node /n/1 is damaged"),
        (b"", "the metadata node /n/1 is damaged"),
        (b"\xff", "the metadata node /n/1 is damaged"),
    ],
)
def test_a_node_that_cannot_be_decoded_stops_the_broker(
    decode: Callable[[str, bytes], object], value: bytes, text: str
) -> None:
    with pytest.raises(CannotStart, match=text):
        decode("/n/1", value)


def test_so_does_a_layout_or_a_change_of_another_version() -> None:
    with pytest.raises(CannotStart, match="/cluster has the format 3; this version knows 2 only"):
        unlogged_nodes.decode_cluster("/cluster", b'{"v":3}')
    with pytest.raises(CannotStart, match="/c has the format 1; this version knows 2 only"):
        nodes.decode_change("/c", b'{"v":1}')


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (ID.hex().encode(), b"zz"),
        (b"[[0,[3]],[100,[1,2]]]", b"[]"),
        (b'"leader":1', b'"leader":"1"'),
    ],
)
def test_a_partition_state_that_lies_is_damage(old: bytes, new: bytes) -> None:
    value = nodes.encode_partition(STATE)
    assert old in value
    with pytest.raises(CannotStart, match="damaged"):
        nodes.decode_partition("/p", 0, value.replace(old, new))


def test_a_partition_state_stays_below_4_kib() -> None:
    extents = tuple(Extent(2**62 + number, (1_000, 1_001, 1_002)) for number in range(80))
    state = PartitionState(1_000, 2**31 - 1, (1_000, 1_001, 1_002), (1_000, 1_001, 1_002), 2**62, 2**62, extents, ID)
    assert len(nodes.encode_partition(state)) < 4_096
