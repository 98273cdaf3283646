"""Node values: what docs/formats/metadata.md says is what is written."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from coordinator.api import BrokerEndpoint, BrokerInfo, Extent, PartitionState, TopicInfo
from coordinator.cluster import nodes
from coordinator.errors import CannotStart

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
BROKER = BrokerInfo(1, (BrokerEndpoint("PLAINTEXT", "host", 9_092),), "rack", ID)
CHANGE = nodes.Change(ID, (nodes.TopicChange(nodes.ChangeKind.PARTITIONS, "a", ID, (0, 2)),))


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


def test_the_documented_form_of_the_other_nodes() -> None:
    assert json.loads(nodes.encode_cluster("id")) == {"v": 1, "cluster_id": "id"}
    assert json.loads(nodes.encode_broker(BROKER)) == {
        "v": 1,
        "incarnation": ID.hex(),
        "endpoints": [["PLAINTEXT", "host", 9_092]],
        "rack": "rack",
    }
    assert json.loads(nodes.encode_controller(1, 2)) == {"v": 1, "broker_id": 1, "epoch": 2}
    assert json.loads(nodes.encode_controller_epoch(2)) == {"v": 1, "epoch": 2}
    topic = TopicInfo("a", ID, (STATE,), {"retention.ms": "1"})
    assert json.loads(nodes.encode_topic(topic)) == {
        "v": 1,
        "topic_id": ID.hex(),
        "partition_count": 1,
        "configs": {"retention.ms": "1"},
    }
    assert json.loads(nodes.encode_topic_partitions("a")) == {"v": 1, "topic": "a"}
    configs = {"": {"a.key": "1"}, "1": {}}
    assert json.loads(nodes.encode_broker_configs(configs)) == {"v": 1, "configs": configs}
    assert json.loads(nodes.encode_features({"transaction.version": 2})) == {
        "v": 1,
        "levels": {"transaction.version": 2},
    }
    assert json.loads(nodes.encode_change(CHANGE)) == {
        "v": 1,
        "writer": ID.hex(),
        "topics": [{"kind": "partitions", "topic": "a", "topic_id": ID.hex(), "partitions": [0, 2]}],
        "broker_configs": False,
        "features": False,
    }


def test_what_is_written_is_read() -> None:
    assert nodes.decode_partition("/p", nodes.encode_partition(STATE)) == STATE
    assert nodes.decode_broker("/brokers/1", nodes.encode_broker(BROKER)) == BROKER
    assert nodes.decode_change("/c", nodes.encode_change(CHANGE)) == CHANGE
    for told in (replace(CHANGE, broker_configs=True), replace(CHANGE, features=True)):
        assert nodes.decode_change("/c", nodes.encode_change(told)) == told
    assert nodes.decode_features("/f", nodes.encode_features({"any": 0, "other": 7})) == {"any": 0, "other": 7}
    assert nodes.decode_broker_configs("/b", nodes.encode_broker_configs({"": {"k": "v"}})) == {"": {"k": "v"}}
    assert nodes.decode_cluster("/cluster", nodes.encode_cluster("id")) == "id"
    assert nodes.decode_controller("/controller", nodes.encode_controller(1, 2)) == (1, 2)
    assert nodes.decode_controller_epoch("/e", nodes.encode_controller_epoch(2)) == 2


def test_unknown_fields_are_ignored() -> None:
    value = nodes.encode_partition(STATE).replace(b'{"v":1', b'{"later":[{}],"v":1')
    assert nodes.decode_partition("/p", value) == STATE


def test_a_change_of_an_earlier_version_says_nothing_of_features() -> None:
    value = nodes.encode_change(CHANGE).replace(b',"features":false', b"")
    assert b"features" not in value
    assert nodes.decode_change("/c", value) == CHANGE


@pytest.mark.parametrize(
    "decode",
    [
        nodes.decode_partition,
        nodes.decode_broker,
        nodes.decode_change,
        nodes.decode_cluster,
        nodes.decode_controller,
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
def test_what_is_not_understood_stops_the_broker(
    decode: Callable[[str, bytes], object], value: bytes, text: str
) -> None:
    with pytest.raises(CannotStart, match=text):
        decode("/n/1", value)


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
        nodes.decode_partition("/p", value.replace(old, new))


def test_a_partition_state_stays_below_4_kib() -> None:
    extents = tuple(Extent(2**62 + number, (1_000, 1_001, 1_002)) for number in range(80))
    state = PartitionState(1_000, 2**31 - 1, (1_000, 1_001, 1_002), (1_000, 1_001, 1_002), 2**62, 2**62, extents, ID)
    assert len(nodes.encode_partition(state)) < 4_096
