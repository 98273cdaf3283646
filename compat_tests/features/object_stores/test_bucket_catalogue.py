"""The catalogue that connectors for Spark make of a bucket without a broker, on a real S3 server."""

from __future__ import annotations

import itertools
import pickle
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
import trio

from compat_tests.features.object_stores.clients import store_at
from compat_tests.harness.s3_server import ACCESS_KEY, SECRET_KEY, S3Server, s3_server
from spark_connectors.segments.bucket_catalogue import BucketCatalogue, Topic
from spark_connectors.segments.object_trailer import Trailer, read_aborted, read_trailer
from spark_connectors.segments.sealed import CatalogueUnavailable
from spark_connectors.segments.stores import ObjectGone, Store, StoreUnavailable
from spark_connectors.wire import TopicPartition
from testkit.bucket_broker import CLUSTER, EVERYTHING, PLACE, TOPIC_ID, Tier, everything
from tiering.manifest import manifest_log
from tiering.topic_deletion import delete_partition

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = "lake/of/one"
ABORTED = ((7, 3, 9), (8, 1, 12))
MIB = 1024 * 1024
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def bucket(server: S3Server) -> str:
    return server.make_bucket(f"bucket-{next(_numbers)}")


@pytest.fixture
def tier(server: S3Server, bucket: str) -> Iterator[Tier]:
    with closing(store_at(server.endpoint, bucket)) as store:
        yield Tier(store, f"{ROOT}/")


def location(server: S3Server, bucket: str, credentials: str = f"{ACCESS_KEY}:{SECRET_KEY}@") -> str:
    endpoint = server.endpoint.removeprefix("http://")
    return f"s3://{credentials}{bucket}/{ROOT}?scheme=http&endpoint_override={endpoint.replace(':', '%3A')}"


def test_a_catalogue_lists_the_topics_and_sealed_segments_of_a_bucket(
    server: S3Server, bucket: str, tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest_log, "MANIFEST_MAX_BYTES", 2_000)
    monkeypatch.setattr(manifest_log, "PAGE_ENTRIES", 4)
    tier.put_topic("topic")
    written = [tier.copy(end, aborted=ABORTED, rows=[(end, 9 * MIB, 0)]) for end in range(10, 100, 10)]
    catalogue, store = BucketCatalogue(location(server, bucket)), Store(location(server, bucket))
    assert catalogue.topics() == {"topic": Topic(TOPIC_ID, 1)}
    for asked in (catalogue, pickle.loads(pickle.dumps(catalogue))):
        found = everything(asked)
        assert (found.log_start, found.end, found.store) == (0, 90, f"s3://{bucket}/{ROOT}")
        assert [one.key for one in found.segments] == [one.key for one in written]
    for one in found.segments:
        assert one.key is not None
        assert read_trailer(store, one.key, one.size_bytes, one.digest) == Trailer(ABORTED, ((one.end, 9 * MIB),))
        assert read_aborted(store, one.key, one.size_bytes, one.digest) == ABORTED
    assert catalogue.sealed(TopicPartition("topic", 1), TOPIC_ID, 0, EVERYTHING) is None


def test_reads_of_a_deleted_segment_raise_object_gone(server: S3Server, bucket: str, tier: Tier) -> None:
    written = tier.copy(10)
    catalogue, store = BucketCatalogue(location(server, bucket)), Store(location(server, bucket))
    with store.open(written.key) as opened:
        trio.run(delete_partition, tier.store, tier.place(), 0, lambda: "nonce", lambda: 0)
        with pytest.raises(ObjectGone, match=written.key):
            opened.read_at(0, 1)
    with pytest.raises(ObjectGone, match=written.key):
        store.open(written.key)
    assert catalogue.sealed(PLACE, TOPIC_ID, 0, EVERYTHING) is None


def test_keys_may_come_from_the_environment(
    server: S3Server, bucket: str, tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier.copy(10)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    assert everything(BucketCatalogue(location(server, bucket, ""))).end == 10


def test_a_refusal_of_the_store_raises_an_error_without_the_secret(server: S3Server, bucket: str, tier: Tier) -> None:
    tier.copy(10)
    secret = "anothersecret"
    wrong = location(server, bucket, f"{ACCESS_KEY}:{secret}@")
    for catalogue in (BucketCatalogue(wrong), BucketCatalogue(wrong, CLUSTER)):
        with pytest.raises(CatalogueUnavailable, match="AWS Error") as refused:
            catalogue.sealed(PLACE, TOPIC_ID, 0, EVERYTHING)
        assert secret not in str(refused.value)


def test_a_bucket_that_is_not_there_is_not_taken_for_empty(server: S3Server) -> None:
    with pytest.raises(CatalogueUnavailable, match=f"s3://nothing/{ROOT} has nothing of a cluster {CLUSTER}"):
        BucketCatalogue(location(server, "nothing"), CLUSTER).sealed(PLACE, TOPIC_ID, 0, EVERYTHING)


def test_a_store_that_does_not_answer_raises_store_unavailable() -> None:
    away = Store("s3://user:secret@bucket/lake?scheme=http&endpoint_override=127.0.0.1%3A9")
    with pytest.raises(StoreUnavailable, match="NETWORK_CONNECTION"):
        away.has("lake/key")
