"""`kafkawire bench`: how fast a Kafka cluster takes and gives records, as Kafka's ProducerPerformance asks it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

import click

from kafkawire.cli.cluster_command import Seconds, bootstrap_option, output_option, timeout_option
from kafkawire.cli.produce import CODECS

RECORD_MAX_BYTES: Final = 64 * 1024 * 1024


def _somebody_looks() -> bool:
    return sys.stderr.isatty()


_COMMON: Final = (
    click.argument("topic"),
    click.option("--records", "records_max", type=click.IntRange(1, 1_000_000_000), help="End after so many."),
    click.option(
        "--duration", "seconds", type=Seconds(3600), metavar="SECONDS",
        help="End after this time.",
    ),
    click.option("--progress/--no-progress", default=_somebody_looks, help="Show it on standard error."),
    bootstrap_option,
    output_option,
    timeout_option,
    click.pass_context,
)  # fmt: skip


def of_a_topic(function: Callable[..., None]) -> Callable[..., None]:
    """What both have in common."""
    for option in reversed(_COMMON):
        function = option(function)
    return function


@click.group("bench")
def command() -> None:
    """Measure how fast records are written and read."""


@command.command("produce")
@click.option("--partitions", "partition_count", type=click.IntRange(min=1), help="Of the topic, if there is none.")
@click.option(
    "--record-size",
    "record_size_bytes",
    type=click.IntRange(1, RECORD_MAX_BYTES),
    default=1024,
    show_default=True,
    metavar="BYTES",
    help="Of values.",
)
@click.option(
    "--batch-size",
    "batch_size_bytes",
    type=click.IntRange(1, RECORD_MAX_BYTES),
    default=16384,
    show_default=True,
    metavar="BYTES",
    help="Of values in a request.",
)
@click.option(
    "--connections",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="To each broker that is written to.",
)
@click.option(
    "--in-flight", type=click.IntRange(1, 100), default=5, show_default=True, help="Requests on each connection."
)
@click.option(
    "--acks",
    type=click.Choice(["all", "1"]),
    default="all",
    show_default=True,
    help="Of all replicas in sync, or of the leader.",
)
@click.option("-z", "--compression", type=click.Choice(CODECS), default="none", show_default=True, help="Of batches.")
@of_a_topic
def produce(context: click.Context, /, bootstrap_server: str, **given: Any) -> None:
    """Write records to TOPIC, for 10 seconds if nothing else is said. It is created if there is none."""
    from kafkawire.cli.bench_produce import bench

    context.exit(bench(bootstrap_server, context.obj, **given))


@command.command("consume")
@click.option("--connections", type=click.IntRange(1, 1000), default=1, show_default=True, help="To each broker.")
@of_a_topic
def consume(context: click.Context, /, bootstrap_server: str, **given: Any) -> None:
    """Read TOPIC from its beginning to where it ends now, if nothing else is said."""
    from kafkawire.cli.bench_consume import bench

    context.exit(bench(bootstrap_server, context.obj, **given))
