"""Removes from a reply all that two healthy brokers cannot agree on: ids, times, addresses, texts, the order of sets.

Everything else stays as it is. An id, a time or a text becomes a word that says it was there, so that a missing one is
still a difference.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Any

from compat_tests.harness.batches import CHECKED, LENGTH_COVERS_FROM, PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

ZERO_ID = bytes(16)
# Above the timestamps that scenarios write (2023), below any that a broker takes from its clock.
CLOCK_FROM_MS = 1_750_000_000_000
TIMES = ("log_append_time", "timestamp", "transaction_start_time", "last_timestamp")
LOG_APPEND_TIME, CONTROL = 0b1000, 0b100000
TOPIC = 2  # a type of resources that have configs
# Arrays that are sets: a broker may list their rows in any order, and clients look them up by these fields.
SORTED_BY: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("metadata", "topics"): ("name", "topic_id"),
    ("metadata", "partitions"): ("partition_index",),
    ("produce", "responses"): ("name", "topic_id"),
    ("produce", "partition_responses"): ("index",),
    ("fetch", "responses"): ("topic", "topic_id"),
    ("fetch", "partitions"): ("partition_index",),
    ("list_offsets", "topics"): ("name",),
    ("list_offsets", "partitions"): ("partition_index",),
    ("create_topics", "topics"): ("name",),
    ("delete_records", "topics"): ("name",),
    ("delete_records", "partitions"): ("partition_index",),
    ("offset_for_leader_epoch", "topics"): ("topic",),
    ("offset_for_leader_epoch", "partitions"): ("partition",),
    ("delete_topics", "responses"): ("name", "topic_id"),
    ("join_group", "members"): ("metadata", "member_id"),
    ("leave_group", "members"): ("member_id", "group_instance_id"),
    ("offset_commit", "topics"): ("name", "topic_id"),
    ("offset_commit", "partitions"): ("partition_index",),
    ("offset_fetch", "groups"): ("group_id",),
    ("offset_fetch", "topics"): ("name", "topic_id"),
    ("offset_fetch", "partitions"): ("partition_index",),
    ("offset_delete", "topics"): ("name",),
    ("offset_delete", "partitions"): ("partition_index",),
    ("describe_groups", "groups"): ("group_id",),
    ("describe_groups", "members"): ("member_metadata", "member_id"),
    ("list_groups", "groups"): ("group_id",),
    ("delete_groups", "results"): ("group_id",),
    ("create_partitions", "results"): ("name",),
    ("describe_log_dirs", "topics"): ("name",),
    ("describe_log_dirs", "partitions"): ("partition_index",),
    ("describe_producers", "active_producers"): ("producer_id",),
    ("add_partitions_to_txn", "results_by_transaction"): ("transactional_id",),
    ("add_partitions_to_txn", "results_by_topic_v3_and_below"): ("name",),
    ("add_partitions_to_txn", "topic_results"): ("name",),
    ("add_partitions_to_txn", "results_by_partition"): ("partition_index",),
    ("write_txn_markers", "topics"): ("name",),
    ("write_txn_markers", "partitions"): ("partition_index",),
    ("txn_offset_commit", "topics"): ("name",),
    ("txn_offset_commit", "partitions"): ("partition_index",),
    ("describe_transactions", "topics"): ("topic",),
    ("list_transactions", "transaction_states"): ("transactional_id",),
    ("list_config_resources", "config_resources"): ("resource_type", "resource_name"),
}
SETS = {("describe_transactions", "partitions")}
# Apache Kafka makes them when it first looks for a coordinator.
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")
# Scenarios leave groups and topics behind; only names with this prefix are compared in listings.
LISTED = "listed-"
# Keys of topics that Apache Kafka does not have.
OWN_TOPIC_KEYS = ("flush.policy", "index.keys")
# Configs that say where a broker lives.
ADDRESSES = (
    "advertised.listeners",
    "controller.quorum.voters",
    "http.listeners",
    "listeners",
    "log.dir",
    "log.dirs",
    "metadata.log.dir",
)
# Arrays that are maps: a row that one side lacks must not shift the others.
KEYED_BY = {
    ("api_versions", "api_keys"): "api_key",
    ("api_versions", "finalized_features"): "name",
    ("api_versions", "supported_features"): "name",
    ("create_topics", "configs"): "name",
    ("describe_configs", "configs"): "name",
}
# Fields whose value only matters to the broker itself, and the values that mean that there is none.
WORDS: Mapping[str, tuple[object, ...]] = {
    "cluster_id": (None, ""),
    "error_message": (None,),
    "batch_index_error_message": (None,),
    "session_id": (0,),
    "producer_id": (-1,),
    "finalized_features_epoch": (-1,),
    "documentation": (None,),
    "log_dir": ("",),
    "total_bytes": (-1,),
    "usable_bytes": (-1,),
}
DROPPED = {"throttle_time"}
# Ids that scenarios made up, not brokers.
KEPT = {("describe_producers", "producer_id")}
MEMBER_ID = re.compile(r"(.*)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Normaliser:
    """Knows the ids of one broker's topics, by name; they are added as scenarios create them.

    Ids that it gave to members of groups and to producers are numbered as they appear in a scenario.
    """

    def __init__(self, topic_ids: Mapping[str, bytes], port: int) -> None:
        self._topic_ids = topic_ids
        self._port = port
        self._members: dict[str, str] = {}
        self._producers: dict[int, str] = {}

    def begin(self) -> None:
        """Begin the next scenario."""
        self._members.clear()
        self._producers.clear()

    def reply(self, api: str, fields: dict[str, Any]) -> dict[str, Any]:
        """A reply with only those values that both brokers should agree on."""
        if api == "init_producer_id" and fields["producer_id"] >= 0:
            self._producers.setdefault(fields["producer_id"], f"(producer {len(self._producers) + 1})")
        return {name: self._field(api, name, value) for name, value in fields.items() if name not in DROPPED}

    def _field(self, api: str, name: str, value: Any) -> Any:
        if isinstance(value, list):
            return self._array(api, name, value)
        if isinstance(value, dict):
            return self.reply(api, value)
        return value if (api, name) in KEPT else self._value(name, value)

    def _array(self, api: str, name: str, rows: list[Any]) -> Any:
        if (api, name) in (("metadata", "topics"), ("describe_topic_partitions", "topics")):
            rows = [row for row in rows if row["name"] not in INTERNAL_TOPICS]
        if (api, name) == ("list_transactions", "transaction_states"):
            rows = [row for row in rows if row["transactional_id"].startswith(LISTED)]
        if (api, name) == ("list_groups", "groups"):
            rows = [row for row in rows if row["group_id"].startswith(LISTED)]
        if (api, name) in (("create_topics", "configs"), ("describe_configs", "configs")):
            rows = [row for row in rows if row["name"] not in OWN_TOPIC_KEYS]
        if (api, name) == ("describe_configs", "configs"):
            rows = [without_address(row) for row in rows]
        if (api, name) == ("list_config_resources", "config_resources"):
            rows = [row for row in rows if row.get("resource_type") != TOPIC or row["resource_name"].startswith(LISTED)]
        shown = [self._field(api, name, row) for row in (sorted(rows) if (api, name) in SETS else rows)]
        keys = SORTED_BY.get((api, name))
        if keys is not None:
            shown.sort(key=lambda row: [(row.get(key) is None, row.get(key)) for key in keys])
        by = KEYED_BY.get((api, name))
        return shown if by is None else {row[by]: row for row in sorted(shown, key=lambda row: row[by])}

    def _value(self, name: str, value: Any) -> Any:
        if name == "topic_id":
            return self._topic_id(value)
        if name in ("member_id", "leader"):
            return self._member_id(value)
        if name == "records":
            return None if value is None else [describe_batch(each, self._producers) for each in split_batches(value)]
        if name == "producer_id" and value in self._producers:
            return self._producers[value]
        if name == "host":
            return "(address)" if value == "127.0.0.1" else value
        if name == "port":
            return "(port)" if value == self._port else value
        if name in WORDS and value not in WORDS[name]:
            return f"({name})"
        if name in TIMES and isinstance(value, int) and value > CLOCK_FROM_MS:
            return "(now)"
        return value

    def _member_id(self, value: str) -> str:
        given = MEMBER_ID.fullmatch(value)
        if given is None:
            return value
        return self._members.setdefault(value, f"({given[1]} {len(self._members) + 1})")

    def _topic_id(self, value: bytes | None) -> str:
        if value is None or value == ZERO_ID:
            return "(none)"
        return next((f"(id of {name})" for name, known in self._topic_ids.items() if known == value), "(other id)")


def without_address(config: dict[str, Any]) -> dict[str, Any]:
    """A config with a word in place of an address, in its synonyms too."""
    if config["name"] not in ADDRESSES:
        return config
    word = f"({config['name']})"
    synonyms = [{**one, "value": word} for one in config["synonyms"]]
    return {**config, "value": word, "synonyms": synonyms}


def split_batches(records: bytes) -> list[bytes]:
    """The batches of a fetched piece of log; a torn one at the end stays torn."""
    found = []
    position = 0
    while position + LENGTH_COVERS_FROM <= len(records):
        (length,) = struct.unpack_from(">i", records, position + 8)
        found.append(records[position : position + LENGTH_COVERS_FROM + length])
        position += LENGTH_COVERS_FROM + length
    if position < len(records):
        found.append(records[position:])
    return found


def describe_batch(batch: bytes, producers: Mapping[int, str]) -> dict[str, Any]:
    """The fields of a batch's header, its records as hex; values from a broker's clock are not shown."""
    if len(batch) < PREFIX.size + CHECKED.size:
        return {"torn": batch.hex()}
    base_offset, length, leader_epoch, magic, crc = PREFIX.unpack_from(batch)
    attributes, last_delta, base_ms, max_ms, producer_id, producer_epoch, sequence, count = CHECKED.unpack_from(
        batch, PREFIX.size
    )
    from_clock = bool(attributes & (LOG_APPEND_TIME | CONTROL))
    return {
        "base_offset": base_offset,
        "length": length,
        "complete": len(batch) == LENGTH_COVERS_FROM + length,
        "leader_epoch": leader_epoch,
        "magic": magic,
        "crc": "(of the broker)" if from_clock or producer_id in producers else crc,
        "attributes": attributes,
        "last_offset_delta": last_delta,
        "base_timestamp": "(now)" if attributes & CONTROL and base_ms > CLOCK_FROM_MS else base_ms,
        "max_timestamp": "(now)" if from_clock and max_ms > CLOCK_FROM_MS else max_ms,
        "producer": [producers.get(producer_id, producer_id), producer_epoch, sequence],
        "count": count,
        "records": batch[PREFIX.size + CHECKED.size :].hex(),
    }
