"""Cost of tools and of reconnecting clients.

The configs of 1,000 topics; and 100 clients that ask for the metadata of 10,000 partitions at once, beside a producer.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from confluent_kafka.admin import NewTopic

from benchmarks.lib import bench, machine, report
from benchmarks.lib.background import working
from benchmarks.lib.load import run_load
from benchmarks.lib.wire_requests import batch_of, checker, produce_requests, sized
from compat_tests.clients.confluent.clients import Admin
from compat_tests.harness.kio_codec import decode_response, encode_request
from compat_tests.harness.wire import WireConnection
from kafkawire.client.load import LoadFailed, Requests

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.lib.background import BackgroundWork
    from benchmarks.lib.bench import Contender, Options

TOPICS = 1_000
CLIENTS = 100
PARTITIONS = 5_000  # of each of two topics: Apache Kafka's controller makes no more at once
DESCRIBE_VERSION, METADATA_VERSION = 4, 12
TOPIC_RESOURCE = 2


def describe_requests(topics: Sequence[str], count: int) -> Requests:
    """DescribeConfigs of all of these topics, every key with its synonyms."""
    resources = [
        {"resource_type": TOPIC_RESOURCE, "resource_name": topic, "configuration_keys": None} for topic in topics
    ]
    fields = {"resources": resources, "include_synonyms": True, "include_documentation": False}
    frame = sized(encode_request("describe_configs", DESCRIBE_VERSION, fields))
    count_size_bytes = 1 if len(topics) < 127 else 2
    return Requests([frame], count, checker(4 + 1 + 4 + count_size_bytes))


def metadata_frame(topics: Sequence[str]) -> bytes:
    """Metadata of all partitions of these topics."""
    fields = {
        "topics": [{"topic_id": bytes(16), "name": topic} for topic in topics],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }
    return encode_request("metadata", METADATA_VERSION, fields)


def metadata_requests(topics: Sequence[str], count: int) -> Requests:
    """Requests whose answers have their first error code behind the names of the brokers: `check_metadata` reads one
    before."""
    return Requests([sized(metadata_frame(topics))], count, lambda head: None)


def check_metadata(port: int, topics: Sequence[str], partitions_each: int) -> None:
    """Whether an answer has all partitions and no error."""
    with WireConnection(port) as connection:
        connection.send_frame(metadata_frame(topics))
        reply = connection.receive_frame()
    if reply is None:
        raise LoadFailed("the broker closed the connection at Metadata")
    found = decode_response("metadata", METADATA_VERSION, reply)["topics"]
    errors = {each["error_code"] for topic in found for each in (topic, *topic["partitions"])} - {0}
    counts = {topic["name"]: len(topic["partitions"]) for topic in found}
    if errors or counts != dict.fromkeys(topics, partitions_each):
        raise LoadFailed(f"Metadata answered with errors {errors} and {counts} partitions")


def describe(options: Options, topics: dict[str, list[str]], contender: Contender) -> report.Figures:
    requests = describe_requests(topics[contender.name], options.count(20, 2))
    figures = bench.measure(contender, [requests], 1)
    return {name: figures[name] for name in ("req/s", "p50 ms", "p99 ms", "CPU s", "MB/s")}


def descriptions(options: Options, field: Sequence[Contender]) -> report.Result:
    count = options.count(TOPICS, 10)
    names = [f"described-{number}" for number in range(count)]
    for contender in field:
        admin = Admin(contender.broker, bench.MAKE_TIMEOUT_S)
        for name in names:
            admin.create(NewTopic(name, 1, 1, config={"retention.ms": "3600000"}))
        bench.wait_until_led(contender, names[-1], [0])
    topics = {contender.name: names for contender in field}
    case = f"DescribeConfigs of {count:,} topics"
    return bench.alternate(case, "req/s", field, partial(describe, options, topics), options)


def ask_on(background: BackgroundWork, port: int, topics: list[str], clients: int) -> None:
    """Send metadata requests from all clients at once, again and again, until the measurement is over."""
    while not background.wait(0):
        for latency_s in run_load(port, [metadata_requests(topics, 1) for _ in range(clients)], 1).latencies_s:
            background.note(latency_s)


def produce_beside_metadata(options: Options, topics: dict[str, list[str]], contender: Contender) -> report.Figures:
    """Measure produce requests alone, then beside metadata requests."""
    port = contender.broker.port
    produced = bench.new_topic(contender, 1)

    def produce() -> dict[str, float]:
        requests = produce_requests(produced, [0], batch_of(bench.KIB), options.count(4_000, 20))
        return bench.measure(contender, [requests], 1)

    alone = produce()
    with working(ask_on, port, topics[contender.name], options.count(CLIENTS, 5)) as asking:
        before = asking.count
        crowded = produce()
        answers = asking.count - before
    bench.delete_topic(contender, produced)
    return {
        "produce p99 ms alone": alone["p99 ms"],
        "produce p99 ms beside": crowded["p99 ms"],
        "p99 beside/alone": crowded["p99 ms"] / alone["p99 ms"],
        "answers/s": answers / (options.count(4_000, 20) / crowded["req/s"]),
    }


def metadata(options: Options, field: Sequence[Contender]) -> report.Result:
    count = options.count(PARTITIONS, 10)
    topics = {contender.name: [bench.new_topic(contender, count) for _ in range(2)] for contender in field}
    for contender in field:
        check_metadata(contender.broker.port, topics[contender.name], count)
    case = f"Metadata of {2 * count:,} partitions to {CLIENTS} clients at once, beside a producer"
    return bench.alternate(
        case, "produce p99 ms beside", field, partial(produce_beside_metadata, options, topics), options
    )


def compare(directory: Path, options: Options) -> report.Report:
    with bench.both(directory, with_kafka=not options.toy) as field:
        bench.warm(field, options)
        results = [descriptions(options, field), metadata(options, field)]
        return report.Report(machine.facts(), results, bench.rss_peaks(field))


def main(arguments: Sequence[str] | None = None) -> None:
    bench.run("administration", __doc__, compare, arguments)


if __name__ == "__main__":
    main()
