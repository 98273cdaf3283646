"""The cluster and the topics of a bucket, and segments that a broker copied there."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from spark_connectors.segments.bucket_catalogue import BucketCatalogue, Topic
from spark_connectors.segments.object_trailer import read_aborted, read_trailer
from spark_connectors.segments.sealed import CatalogueUnavailable
from spark_connectors.segments.stores import Store
from spark_connectors.wire import TopicPartition
from testkit.bucket_broker import CLUSTER, EVERYTHING, OTHER_ID, TOPIC_ID, Bucket, everything, name, put
from testkit.cold_broker import COLD, cold_broker
from tiering.topic_deletion import delete_partition

# --- the cluster


def test_bucket_of_several_clusters_requires_a_cluster_id(bucket: Bucket) -> None:
    bucket.copy(10)
    Bucket(bucket.directory, "another").copy(20)
    put(bucket, "probe/0", b"")
    put(bucket, "no-cluster/topics/0", b"")
    location = str(bucket.directory)
    with pytest.raises(CatalogueUnavailable, match=f"it has those of another, {CLUSTER}: say which"):
        everything(BucketCatalogue(location))
    assert everything(BucketCatalogue(location, CLUSTER)).end == 10
    assert everything(BucketCatalogue(location, "another")).end == 20


def test_invalid_location_is_refused_without_showing_its_password() -> None:
    with pytest.raises(ValueError, match="s3://bucket is no place for files") as refused:
        BucketCatalogue("s3://user:secret@bucket?unknown=1")
    assert "secret" not in str(refused.value)


def test_a_catalogue_does_not_show_its_password() -> None:
    catalogue = BucketCatalogue("s3://user:secret@bucket/lake?region=us-east-1")
    assert repr(catalogue) == "BucketCatalogue(s3://bucket/lake)"
    assert repr(Store("s3://user:secret@bucket/lake")) == "Store(s3://bucket/lake)"


def test_keys_in_a_bucket_begin_with_the_prefix() -> None:
    region = "?region=us-east-1"
    assert [Store(f"s3://bucket{path}{region}").root for path in ("/lake", "/", "/a/b/")] == ["lake/", "", "a/b/"]
    assert Store("/lake").root == ""


# --- topics


def test_topics_are_told_as_they_are_now(bucket: Bucket, catalogue: BucketCatalogue) -> None:
    bucket.put_topic("topic", TOPIC_ID, 1)
    bucket.put_topic("other", OTHER_ID, 2)
    for count in range(2, 12):
        bucket.put_topic("topic", TOPIC_ID, count)
    every = {"topic": Topic(TOPIC_ID, 11), "other": Topic(OTHER_ID, 2)}
    assert catalogue.topics() == every
    assert catalogue.topics(["topic", "unknown"]) == {"topic": every["topic"]}


def test_there_may_be_no_topics(catalogue: BucketCatalogue) -> None:
    assert catalogue.topics() == {}


def test_two_topics_with_one_name_raise_until_either_is_deleted(bucket: Bucket, catalogue: BucketCatalogue) -> None:
    for topic_id in (TOPIC_ID, OTHER_ID):
        bucket.put_topic("topic", topic_id, 2)
        bucket.copy(10, bucket.place(1, topic_id))
    with pytest.raises(CatalogueUnavailable, match=f"which topic is topic cannot be told: .*{OTHER_ID.hex()}"):
        catalogue.topics()
    assert catalogue.topics(["other"]) == {}
    trio.run(delete_partition, bucket.store, bucket.place(1), 0, name, lambda: 0)
    assert catalogue.topics() == {"topic": Topic(OTHER_ID, 2)}
    trio.run(delete_partition, bucket.store, bucket.place(1, OTHER_ID), 0, name, lambda: 0)
    assert catalogue.topics() == {}


def test_a_topic_that_goes_meanwhile_was_not_there(
    bucket: Bucket, catalogue: BucketCatalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.put_topic("topic")
    monkeypatch.setattr(Store, "read", lambda _store, _key: None)
    assert catalogue.topics() == {}


def test_a_damaged_topic_is_told(bucket: Bucket, catalogue: BucketCatalogue) -> None:
    bucket.put_topic("topic")
    (path,) = bucket.path(f"{CLUSTER}/topics/{TOPIC_ID.hex()}").iterdir()
    path.write_bytes(b"{}")
    with pytest.raises(CatalogueUnavailable, match=f"{path.name} fails its CRC"):
        catalogue.topics()


# --- a broker


async def test_catalogue_finds_topics_and_segments_that_a_broker_uploaded(tmp_path: Path) -> None:
    async with cold_broker(2, 3) as cold:
        for key, (data, _) in cold.deps.objects.objects.items():
            path = tmp_path / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        image = cold.opened.broker.coordinator.image
        logs = [cold.log(COLD, partition) for partition in range(2)]
        known = [(log.log_start_offset, log.partition.topic_id) for log in logs]
    location = str(tmp_path / "lake")
    catalogue, store = BucketCatalogue(location), Store(location)
    topic = catalogue.topics()[COLD]
    assert topic == Topic(image.topics[COLD].topic_id, 2)
    assert [path.name for path in (tmp_path / "lake").iterdir() if path.name != "probe"] == [image.cluster_id]
    for partition, (log_start, topic_id) in enumerate(known):
        found = catalogue.sealed(TopicPartition(COLD, partition), topic_id, 0, EVERYTHING)
        assert found is not None
        assert (found.log_start, found.end, len(found.segments)) == (log_start, 3, 3)
        for one in found.segments:
            assert one.key is not None
            assert read_trailer(store, one.key, one.size_bytes, one.digest) == ((), ())
            assert read_aborted(store, one.key, one.size_bytes, one.digest) == ()
