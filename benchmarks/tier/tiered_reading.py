"""How fast are reads of records that only the remote tier has: from the beginning, anywhere, and the same by many?"""

from __future__ import annotations

import itertools
import time
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from benchmarks.lib import bench, machine, report
from benchmarks.lib.bench import MIB, Contender
from benchmarks.lib.load import run_load
from benchmarks.lib.tiered_brokers import Distance, KafkawireOnS3, get_s, large_objects
from benchmarks.lib.tiered_data import SEEK_BYTES, Sizes, fill_cold, read_through, seek_by_offset_s, seek_by_time_s
from benchmarks.lib.wire_requests import fetch_requests
from compat_tests.features.object_stores.clients import store_at
from compat_tests.features.object_stores.faulty_store import FaultyStore
from kafkawire.client.load import percentile_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from benchmarks.lib.bench import Options
    from benchmarks.lib.tiered_brokers import Tiers
    from benchmarks.lib.tiered_data import Filled
    from compat_tests.harness.s3_server import S3Server
    from tiering.object_store import ObjectInfo, ObjectStore

SEED: Final = 1
FAR_S: Final = 0.03
PAUSE_S: Final = 0.05  # between seeks: the read-ahead of one must not delay the next
READERS: Final = 20
SEEK_BOUND: Final = "p99 at most 50 ms beyond that of a GET"


class Places:
    """Places of seeks, as shares of the data, never near each other."""

    def __init__(self, choice: Random, count: int) -> None:
        self._choice = choice
        self._count = count

    def sample(self) -> list[float]:
        slots = self._choice.sample(range(self._count), self._count)
        return [(slot + self._choice.random() / 8) / self._count for slot in slots]


def sequential(directory: Path, data: dict[str, Filled], contender: Contender) -> report.Figures:
    """Read the whole cold part, one fetch after the other."""
    machine.drop_page_cache(directory)
    before_s = machine.cpu_s(contender.broker.pid)
    read_bytes, seconds = read_through(contender, data[contender.name])
    cpu_s = machine.cpu_s(contender.broker.pid) - before_s
    return {"MB/s": read_bytes / 1e6 / seconds, "CPU s/GB": cpu_s / (read_bytes / 1e9)}


class Seeks:
    """Seeks, one after the other, everywhere in the cold part; and bare GETs of the same places."""

    def __init__(self, directory: Path, data: dict[str, Filled], places: Places, pause_s: float) -> None:
        self._directory = directory
        self._data = data
        self._places = places
        self._pause_s = pause_s

    def once(
        self, stores: Mapping[str, ObjectStore], objects: Mapping[str, list[ObjectInfo]], contender: Contender
    ) -> report.Figures:
        data, store, of = self._data[contender.name], stores[contender.name], objects[contender.name]
        by_offset = self._timed(lambda share: seek_by_offset_s(contender, data, share))
        by_time = self._timed(lambda share: seek_by_time_s(contender, data, share))
        got = self._timed(lambda share: get_s(store, of, share))
        return {
            "by offset p50 ms": percentile_ms(by_offset, 0.50),
            "by offset p99 ms": percentile_ms(by_offset, 0.99),
            "by time p50 ms": percentile_ms(by_time, 0.50),
            "by time p99 ms": percentile_ms(by_time, 0.99),
            "GET p50 ms": percentile_ms(got, 0.50),
            "GET p99 ms": percentile_ms(got, 0.99),
            "p99 beyond a GET's ms": max(percentile_ms(each, 0.99) for each in (by_offset, by_time))
            - percentile_ms(got, 0.99),
        }

    def _timed(self, seek_s: Callable[[float], float]) -> list[float]:
        """The times of seeks to some places, sorted."""
        found = []
        for share in self._places.sample():
            time.sleep(self._pause_s)
            machine.drop_page_cache(self._directory)
            found.append(seek_s(share))
        return sorted(found)


def readers(proxy: FaultyStore, data: Filled, numbers: itertools.count[int], contender: Contender) -> report.Figures:
    """The number of requests to the store for the end of a segment, by one reader and by many at once."""
    contender.broker.stop()
    contender.broker.start()  # its cache of chunks is empty now
    asked = []
    for count in (1, READERS):
        last = (next(numbers) % data.sizes.segments + 1) * data.sizes.segment_records - 1
        before = proxy.requests()["GET segment"]
        loads = [fetch_requests(data.topic, [last], 1, SEEK_BYTES) for _ in range(count)]
        took = run_load(contender.broker.port, loads, 1)
        asked.append((proxy.requests()["GET segment"] - before, took.percentile_ms(1.0)))
    (alone, alone_ms), (together, together_ms) = asked
    return {
        "GETs of 1": alone,
        "slowest ms": alone_ms,
        f"GETs of {READERS}": together,
        f"slowest ms of {READERS}": together_ms,
    }


def reading(directory: Path, tiers: Tiers, server: S3Server, options: Options) -> list[report.Result]:
    sizes = Sizes(1, 2, MIB) if options.toy else Sizes(1, max(2, round(16 * options.scale)), 64 * MIB)
    data = {each.name: fill_cold(each, sizes) for each in tiers.field}
    objects = {name: large_objects(store) for name, store in tiers.stores.items()}
    for contender in tiers.field:
        read_through(contender, data[contender.name])  # the JVM is warm then, for this too
    case = f"{sizes.sealed_bytes / 1e6:.0f} MB in the tier, read from the beginning"
    once = partial(sequential, directory, data)
    results = [bench.alternate(case, "MB/s", tiers.field, once, options, "MB/s at least those of Kafka")]
    places = Places(Random(SEED), 2 if options.toy else max(2, sizes.sealed_bytes // (8 * MIB)))
    seeks = Seeks(directory, data, places, 0.0 if options.toy else PAUSE_S)
    once = partial(seeks.once, tiers.stores, objects)
    results.append(bench.alternate("a seek in it", "by offset p50 ms", tiers.field, once, options, SEEK_BOUND))
    plan, broker = Distance(), tiers.on_s3
    with FaultyStore(server.endpoint, plan) as proxy:
        move(broker, proxy.endpoint)
        [near] = [each for each in tiers.field if each.broker is broker]
        far = {near.name: store_at(proxy.endpoint, broker.bucket)}
        for plan.delay_s in (0.0, FAR_S):
            case = f"a seek in it, the store {1000 * plan.delay_s:.0f} ms away behind a proxy"
            once = partial(seeks.once, far, objects)
            results.append(bench.alternate(case, "by offset p50 ms", [near], once, options, SEEK_BOUND))
        once, bound = partial(readers, proxy, data[near.name], itertools.count()), f"as many GETs of {READERS} as of 1"
        case = f"1 and {READERS} readers of a chunk that is not cached"
        results.append(bench.alternate(case, "slowest ms", [near], once, options, bound))
        move(broker, server.endpoint)
    return results


def move(broker: KafkawireOnS3, endpoint: str) -> None:
    broker.stop()
    broker.ask_at(endpoint)
    broker.start()
