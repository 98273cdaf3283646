"""Cost of an idle connection, and effect of 2,000 idle ones on 50 busy ones."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.lib import bench, machine, report
from benchmarks.lib.wire_requests import batch_of, produce_requests
from compat_tests.harness.wire import WireConnection, request_frame

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.lib.bench import Contender, Options

BUSY = 50
API_VERSIONS = 18


def open_idle(stack: ExitStack, port: int, count: int) -> None:
    """Open connections that send the first request of every client, and are idle then."""
    for _ in range(count):
        connection = stack.enter_context(WireConnection(port))
        connection.send_frame(request_frame(API_VERSIONS, 0, b""))
        assert connection.receive_frame() is not None


def once(idle: int, requests: int, topics: dict[str, str], contender: Contender) -> report.Figures:
    """Measure without idle connections, then with them."""
    topic, batch = topics[contender.name], batch_of(bench.KIB)
    load = [produce_requests(topic, [each], batch, requests // BUSY) for each in range(BUSY)]
    alone = bench.measure(contender, load, 1)
    with ExitStack() as stack:
        open_idle(stack, contender.broker.port, idle)
        crowded = bench.measure(contender, load, 1)
    return {
        "req/s alone": alone["req/s"],
        "req/s": crowded["req/s"],
        "p99 ms alone": alone["p99 ms"],
        "p99 ms": crowded["p99 ms"],
        "p99 with to without": crowded["p99 ms"] / alone["p99 ms"],
        "CPU s": crowded["CPU s"],
    }


def cost(idle: int, directory: Path, options: Options) -> report.Result:
    """The memory of idle connections on brokers that have just been started: a broker that has served others has memory
    to spare."""
    runs: dict[str, list[report.Figures]] = {}
    for number in range(options.alternations):
        with bench.both(directory / f"fresh-{number}", with_kafka=not options.toy) as field:
            for contender in field:
                broker = contender.broker
                with ExitStack() as stack:
                    open_idle(stack, broker.port, BUSY)  # the memory of the first ones is no cost of each
                    before_mib = machine.rss_mib(broker.pid)
                    open_idle(stack, broker.port, idle)
                    after_mib = machine.rss_mib(broker.pid)
                figures = {"KiB each": (after_mib - before_mib) * 1024 / idle, "RSS MiB": after_mib}
                runs.setdefault(contender.name, []).append(figures)
    bound = "kafkawire: at most 20 KiB each"
    result = report.Result(f"memory of {idle} idle connections", "RSS MiB", runs, bound)
    print(report.as_text(result), flush=True)
    return result


def compare(directory: Path, options: Options) -> report.Report:
    machine.raise_descriptor_limit()
    idle = options.count(2_000, 50)
    requests = options.count(20_000, 10 * BUSY)
    memory = cost(idle, directory, options)
    with bench.both(directory, with_kafka=not options.toy) as shipped:
        field = bench.durabilities(shipped)
        bench.warm(field, options)
        case = f"{idle} idle connections beside {BUSY} that produce 1 KiB"
        with bench.a_topic_each(field, BUSY) as topics:
            result = bench.alternate(case, "p99 ms", field, partial(once, idle, requests, topics), options)
        return report.Report(machine.facts(), [memory, result], bench.rss_peaks(shipped))


def main(arguments: Sequence[str] | None = None) -> None:
    bench.run("connections", __doc__, compare, arguments)


if __name__ == "__main__":
    main()
