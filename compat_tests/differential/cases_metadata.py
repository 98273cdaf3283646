"""Metadata, DescribeCluster and ApiVersions: the first requests of a client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compat_tests.differential.catalogue import case

if TYPE_CHECKING:
    from compat_tests.differential.side import Side

UNKNOWN_ID = bytes(range(16))


@case("metadata")
def all_topics(side: Side, version: int) -> None:
    """Version 0 asks for all with an empty list, later ones with null."""
    side.create_topic("metadata-one")
    side.create_topic("metadata-two", partitions=2)
    side.ask("metadata", version, {"topics": [] if version == 0 else None})


@case("metadata", since=1)
def no_topics(side: Side, version: int) -> None:
    side.ask("metadata", version, {"topics": []})


@case("metadata")
def one_topic_twice(side: Side, version: int) -> None:
    side.create_topic("metadata-two", partitions=2)
    side.ask("metadata", version, {"topics": [{"name": "metadata-two"}, {"name": "metadata-two"}]})


@case("metadata", since=4)
def unknown_topic_is_not_created(side: Side, version: int) -> None:
    fields = {"topics": [{"name": "metadata-nowhere"}], "allow_auto_topic_creation": False}
    side.ask("metadata", version, fields)
    side.ask("metadata", version, fields)


@case("metadata")
def unknown_topic_is_created(side: Side, version: int) -> None:
    name = f"metadata-auto-{version}"
    side.ask("metadata", version, {"topics": [{"name": name}], "allow_auto_topic_creation": True}, label="first")
    side.create_topic(name)  # only waits: it is there, or about to be
    side.ask("metadata", version, {"topics": [{"name": name}], "allow_auto_topic_creation": True}, label="later")


@case("metadata", (4, 9, 13))
def colliding_name_is_not_created(side: Side, version: int) -> None:
    """Metrics cannot tell a dot from an underscore, so Kafka creates only one of such topics."""
    side.create_topic(f"metadata.collides.{version}")
    fields = {"topics": [{"name": f"metadata_collides.{version}"}], "allow_auto_topic_creation": True}
    side.ask("metadata", version, fields, label="colliding name")


@case("metadata")
def bad_names(side: Side, version: int) -> None:
    for name in ("", ".", "..", "bad name", "x" * 250, "a/b", "ünï"):
        fields = {"topics": [{"name": name}], "allow_auto_topic_creation": True}
        side.ask("metadata", version, fields, label=f"name {name[:9]!r}")


@case("metadata", since=10)
def by_topic_id(side: Side, version: int) -> None:
    topic_id = side.create_topic("metadata-one")
    side.ask("metadata", version, {"topics": [{"name": None, "topic_id": topic_id}]}, label="known id")
    side.ask("metadata", version, {"topics": [{"name": None, "topic_id": UNKNOWN_ID}]}, label="unknown id")
    side.ask("metadata", version, {"topics": [{"name": None, "topic_id": bytes(16)}]}, label="zero id")


@case("metadata", since=10)
def id_and_name(side: Side, version: int) -> None:
    topic_id = side.create_topic("metadata-one")
    row = {"name": "metadata-one", "topic_id": topic_id}
    side.ask("metadata", version, {"topics": [row]})
    other = {"name": "metadata-two", "topic_id": topic_id}
    side.ask("metadata", version, {"topics": [other]}, label="of another topic")
    mixed = [{"name": None, "topic_id": topic_id}, {"name": "metadata-two"}]
    side.ask("metadata", version, {"topics": mixed}, label="one by id and one by name")


@case("metadata", since=8)
def authorized_operations(side: Side, version: int) -> None:
    side.create_topic("metadata-one")
    fields = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    side.ask("metadata", version, {"topics": [{"name": "metadata-one"}], **fields})


@case("describe_cluster")
def cluster(side: Side, version: int) -> None:
    side.ask("describe_cluster", version, {})
    side.ask("describe_cluster", version, {"include_cluster_authorized_operations": True}, label="operations")
    side.ask("describe_cluster", version, {"include_fenced_brokers": True}, label="fenced")


@case("describe_cluster", since=1)
def endpoint_types(side: Side, version: int) -> None:
    for kind in (0, 1, 2, 3):
        side.ask("describe_cluster", version, {"endpoint_type": kind}, label=f"type {kind}")


@case("find_coordinator")
def coordinators(side: Side, version: int) -> None:
    """Kinds: 0 group, 1 transaction, 2 share group (version 6)."""
    for kind in (0, 1, 2, 3, -1):
        fields = {"key": "one", "coordinator_keys": ["one", "two"], "key_type": kind}
        side.ask("find_coordinator", version, fields, label=f"key type {kind}")
    side.ask("find_coordinator", version, {"key": "", "coordinator_keys": [], "key_type": 0}, label="no key")


@case("api_versions")
def versions(side: Side, version: int) -> None:
    fields = {"client_software_name": "compat", "client_software_version": "1.0"}
    side.ask("api_versions", version, fields)
    side.ask("api_versions", version, fields, label="again")


@case("api_versions", since=3)
def bad_software_names(side: Side, version: int) -> None:
    """KIP-511: letters, digits, dots and dashes, and not at the ends."""
    for name, number in (("", "1"), ("a", ""), ("-a", "1"), ("a-", "1"), ("a b", "1"), ("a", "1 0"), ("ä", "1")):
        fields = {"client_software_name": name, "client_software_version": number}
        side.ask("api_versions", version, fields, label=f"software {name!r} {number!r}")
    side.still_open()
