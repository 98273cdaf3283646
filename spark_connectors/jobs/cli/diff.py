"""Arguments of `kafkawire-spark diff`, which compares the rows of two topics."""

from __future__ import annotations

import argparse
from typing import Final

from spark_connectors.jobs.cli.common import Refused, add_source, assignment, topic_options
from spark_connectors.jobs.comparison import diff
from spark_connectors.jobs.report import Report
from spark_connectors.jobs.session import Session
from spark_connectors.jobs.topic_log import TopicLog
from spark_connectors.source.options import SourceOptions

NAME: Final = "diff"
HELP: Final = "Compares two topics, of one cluster or two."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See Command."""
    for side in ("left", "right"):
        parser.add_argument(side, metavar=side.upper(), help="topic, or HOST:PORT[,…]/TOPIC of another cluster")
    add_source(parser)
    for side in ("left", "right"):
        parser.add_argument(
            f"--{side}-option",
            action="append",
            default=[],
            type=assignment,
            metavar="NAME=VALUE",
            help=f"an option of the source for the {side} topic alone",
        )
    parser.add_argument("--ignore-offsets", action="store_true", help="compare rows by their order within a partition")
    parser.add_argument(
        "--columns",
        type=columns,
        default=diff.COMPARABLE,
        metavar="NAME[,…]",
        help=f"of {', '.join(diff.COMPARABLE)}, which are compared; all",
    )


def columns(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if unknown := [name for name in names if name not in diff.COMPARABLE]:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)} is none of {', '.join(diff.COMPARABLE)}")
    return names


def run(arguments: argparse.Namespace, session: Session) -> Report:
    """See Command."""
    sides = [options_of(arguments, side) for side in ("left", "right")]
    asked = {"left": arguments.left, "right": arguments.right, "bootstrap_server": arguments.bootstrap_server}
    report = Report(NAME, {**asked, "columns": arguments.columns, "ignore_offsets": arguments.ignore_offsets})
    compare = diff.diff_in_order if arguments.ignore_offsets else diff.diff
    with TopicLog(sides[0]) as left, TopicLog(sides[1]) as right:
        compare(left, right, arguments.columns, report, session)
    return report


def options_of(arguments: argparse.Namespace, side: str) -> SourceOptions:
    """Source options of a side. Raises Refused, OptionRefused."""
    servers, slash, topic = getattr(arguments, side).rpartition("/")
    if (slash and not servers) or not topic:
        raise Refused(f"{getattr(arguments, side)!r} is neither TOPIC nor HOST:PORT/TOPIC")
    one = argparse.Namespace(
        topic=topic,
        bootstrap_server=servers or arguments.bootstrap_server,
        option=[*arguments.option, *getattr(arguments, f"{side}_option")],
    )
    return topic_options(one)
