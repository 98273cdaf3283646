"""`kafkawire bench`: throughput of a Kafka cluster, measured like Kafka's ProducerPerformance."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

import click

from kafkawire.cli.common.cluster_command import Seconds, bootstrap_option, output_option, timeout_option
from kafkawire.cli.produce.command import CODECS

RECORD_MAX_BYTES: Final = 64 * 1024 * 1024


def _stderr_is_terminal() -> bool:
    return sys.stderr.isatty()


_COMMON: Final = (
    click.argument("topic"),
    click.option("--records", "records_max", type=click.IntRange(1, 1_000_000_000), help="End after so many records."),
    click.option(
        "--duration", "seconds", type=Seconds(3600), metavar="SECONDS",
        help="Time after which the run ends.",
    ),
    click.option("--progress/--no-progress", default=_stderr_is_terminal, help="Show the progress on standard error."),
    bootstrap_option,
    output_option,
    timeout_option,
    click.pass_context,
)  # fmt: skip


def common_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that both commands share."""
    for option in reversed(_COMMON):
        function = option(function)
    return function


@click.group("bench")
def command() -> None:
    """Measure the throughput of writes and reads."""


@command.command("produce")
@click.option(
    "--partitions", "partition_count", type=click.IntRange(min=1), help="Number of partitions, if the topic is created."
)
@click.option(
    "--record-size",
    "record_size_bytes",
    type=click.IntRange(1, RECORD_MAX_BYTES),
    default=1024,
    show_default=True,
    metavar="BYTES",
    help="Size of each value.",
)
@click.option(
    "--batch-size",
    "batch_size_bytes",
    type=click.IntRange(1, RECORD_MAX_BYTES),
    default=16384,
    show_default=True,
    metavar="BYTES",
    help="Size of the values in one batch.",
)
@click.option(
    "--connections",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="Number of connections to each leader.",
)
@click.option(
    "--in-flight",
    type=click.IntRange(1, 100),
    default=5,
    show_default=True,
    help="Requests in flight on each connection.",
)
@click.option(
    "--acks",
    type=click.Choice(["all", "1"]),
    default="all",
    show_default=True,
    help="Acknowledgement by all in-sync replicas, or by the leader.",
)
@click.option(
    "-z",
    "--compression",
    type=click.Choice(CODECS),
    default="none",
    show_default=True,
    help="Compression codec of the batches.",
)
@common_options
def produce(context: click.Context, /, bootstrap_server: str, **given: Any) -> None:
    """Write records to TOPIC, by default for 10 seconds. The topic is created if it does not exist."""
    from kafkawire.cli.bench.produce import bench

    context.exit(bench(bootstrap_server, context.obj, **given))


@command.command("consume")
@click.option(
    "--connections",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="Number of connections to each broker.",
)
@common_options
def consume(context: click.Context, /, bootstrap_server: str, **given: Any) -> None:
    """Read TOPIC, by default from its start to its present end."""
    from kafkawire.cli.bench.consume import bench

    context.exit(bench(bootstrap_server, context.obj, **given))
