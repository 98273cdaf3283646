"""Brokers with a remote tier, side by side, and direct requests to their stores for comparison."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trio

from benchmarks.lib.bench import MIB, Contender
from compat_tests.features.object_stores.clients import directory_at, store_at
from compat_tests.features.object_stores.store_faults import Decision
from compat_tests.features.tiering.brokers import QUICK, TieredKafka, TieredKafkawire
from compat_tests.features.tiering.tiers import in_bucket
from compat_tests.harness.apache_kafka import STOCK_JVM
from compat_tests.harness.kafkawire_broker import Kafkawire
from compat_tests.harness.s3_server import s3_server
from tiering.parallel import objects_below
from tiering.read.chunks import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from compat_tests.features.object_stores.store_faults import StoreRequest
    from compat_tests.harness.broker import Broker
    from compat_tests.harness.s3_server import S3Server
    from tiering.object_store import ObjectInfo, ObjectStore

BUCKET: Final = "bucket"
GET_BYTES: Final = 2 * CHUNK_BYTES  # the usual request of a broker for a seek
OVERRIDES: Final = {"log.retention.ms": "-1"}  # the records are years old
OURS: Final = {"tier.cache.size.bytes": str(64 * MIB)}


class KafkawireOnS3(Kafkawire):
    """A broker whose store is a bucket of a server, with no other objects in it."""

    name = "kafkawire S3"

    def __init__(self, directory: Path, server: S3Server) -> None:
        bucket = server.make_bucket(f"{BUCKET}-{directory.name}")
        super().__init__(directory, {**QUICK, **OVERRIDES, **OURS, **in_bucket(bucket, server.endpoint)})
        self.bucket = bucket

    def ask_at(self, endpoint: str) -> None:
        """Use this endpoint from the next start on."""
        self.overrides["tier.s3.endpoint"] = endpoint


def in_directory(directory: Path) -> TieredKafkawire:
    return TieredKafkawire(directory, {**OVERRIDES, **OURS})


def without_tier(directory: Path) -> Kafkawire:
    """The same broker without a tier."""
    untiered = {key: value for key, value in QUICK.items() if key != "remote.log.storage.system.enable"}
    return Kafkawire(directory, {**untiered, **OVERRIDES})


@dataclass(frozen=True)
class Tiers:
    """`field`: brokers with a tier on this machine. `stores`: clients of their stores, by the name of the contender."""

    field: list[Contender]
    stores: dict[str, ObjectStore]
    on_s3: KafkawireOnS3


@contextmanager
def running(directory: Path, server: S3Server, *, with_kafka: bool) -> Iterator[Tiers]:
    """The brokers, on new directories."""
    on_s3 = KafkawireOnS3(directory / "on-s3", server)
    brokers: list[tuple[str, Broker, ObjectStore]] = [
        ("kafkawire", in_directory(directory / "kafkawire"), directory_store(directory / "kafkawire" / "tier")),
        ("kafkawire S3", on_s3, store_at(server.endpoint, on_s3.bucket)),
    ]
    if with_kafka:
        kafka = TieredKafka(directory / "kafka", OVERRIDES, jvm=STOCK_JVM)
        brokers.append(("Kafka", kafka, directory_store(directory / "kafka" / "tier")))
    with ExitStack() as stack:
        field = [
            Contender(name, stack.enter_context(broker), {}, is_synced=name != "Kafka") for name, broker, _ in brokers
        ]
        if with_kafka:
            stack.callback(kafka.kill)  # told to leave, it looks for itself, to read its metadata of the tier
        yield Tiers(field, {name: store for name, _, store in brokers}, on_s3)


def directory_store(directory: Path) -> ObjectStore:
    """A store to read from only, also objects of another program."""
    store = directory_at(directory)
    trio.run(store.prepare)
    return store


class Distance:
    """The delay of a far store: a plan of `FaultyStore` that may change."""

    def __init__(self) -> None:
        self.delay_s = 0.0

    def decide(self, _request: StoreRequest) -> Decision:
        return Decision(delay_s=self.delay_s)


def large_objects(store: ObjectStore) -> list[ObjectInfo]:
    """The segment objects, in the order of their keys."""
    return [one for one in trio.run(objects_below, store, "") if one.size_bytes > CHUNK_BYTES // 2]


def get_s(store: ObjectStore, objects: list[ObjectInfo], share: float) -> float:
    """Seconds of a bare GET of as many bytes as a broker asks for, at that share of all objects."""
    number, into = divmod(share * len(objects), 1)
    one = objects[int(number)]
    position = int(into * one.size_bytes) // CHUNK_BYTES * CHUNK_BYTES

    async def get() -> float:
        begun_s = time.perf_counter()
        await store.get(one.key, position, GET_BYTES)
        return time.perf_counter() - begun_s

    return trio.run(get)


@contextmanager
def s3(directory: Path) -> Iterator[S3Server]:
    """The server, with a directory of its own."""
    (directory / "s3").mkdir()
    with s3_server(directory / "s3") as server:
        yield server
