"""Common arguments of jobs: topic, source, workers and report."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from spark_connectors.jobs.report import Report
from spark_connectors.jobs.session import Session
from spark_connectors.jobs.table_names import TableName, table_name
from spark_connectors.options import KAFKA_PREFIX
from spark_connectors.source.options import SourceOptions, source_options

_OWN: Final = frozenset({f"{KAFKA_PREFIX}bootstrap.servers", "subscribe", "includeHeaders", "columns"})
_BYTES: Final = re.compile(r"(\d+)(B|KiB|MiB|GiB)?")
_UNITS: Final = {None: 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


class Refused(Exception):
    """A clear command line that asks for something impossible."""


class Command(Protocol):
    """Interface of a job's module."""

    NAME: str
    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...
    def run(self, arguments: argparse.Namespace, session: Session) -> Report:
        """Run the job. Raises Refused, and other refusals, for impossible requests. After any other error, the job may
        be run again.
        """


def add_topic(parser: argparse.ArgumentParser) -> None:
    """Add the topic and the arguments of the source, for `topic_options`."""
    parser.add_argument("--topic", required=True)
    add_source(parser)


def add_source(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say how topics are read."""
    parser.add_argument("-b", "--bootstrap-server", metavar="HOST:PORT[,…]", help="brokers to connect to first")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        type=assignment,
        metavar="NAME=VALUE",
        help="an option of the source, such as segments or kafka.isolation.level",
    )


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for workers, dry run and report."""
    workers = parser.add_mutually_exclusive_group()
    workers.add_argument(
        "--workers", type=positive, help="number of processes on this machine; the default is one for each processor"
    )
    workers.add_argument("--spark", action="store_true", help="run the tasks in a Spark session")
    parser.add_argument("--dry-run", action="store_true", help="report the plan and change nothing")
    parser.add_argument("--report", metavar="FILE", help="file for the report, in JSON; - is standard output")
    parser.add_argument("--quiet", action="store_true", help="print no progress")


def add_table_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for `table_of`."""
    parser.add_argument(
        "--table-option",
        action="append",
        default=[],
        type=assignment,
        metavar="NAME=VALUE",
        help="a storage option of deltalake, or a property of pyiceberg's catalog",
    )


def topic_options(arguments: argparse.Namespace, **more: str) -> SourceOptions:
    """Options for all rows of a topic with all columns, unless the arguments say otherwise.

    Raises Refused if an option has an argument of its own, and OptionRefused if the source refuses an option.
    """
    asked = dict(arguments.option)
    if taken := sorted(asked.keys() & _OWN):
        raise Refused(f"{', '.join(taken)}: there are other arguments for it, or it cannot be chosen")
    own = {"subscribe": arguments.topic, "includeHeaders": "true"}
    if arguments.bootstrap_server is not None:
        own[f"{KAFKA_PREFIX}bootstrap.servers"] = arguments.bootstrap_server
    options = source_options({**asked, **own, **more}, is_stream=False)
    if len(options.selection.topics) != 1:
        raise Refused(f"--topic {arguments.topic}: it is one a run")
    return options


def table_of(text: str, arguments: argparse.Namespace) -> TableName:
    """Raises NameRefused."""
    return table_name(text, dict(arguments.table_option))


def shown_arguments(arguments: argparse.Namespace, **shown: Any) -> Mapping[str, Any]:
    """Arguments for a report, without secrets: `shown`, the plain arguments, and options by name only."""
    plain = {"topic": arguments.topic, "bootstrap_server": arguments.bootstrap_server}
    options: Sequence[tuple[str, str]] = arguments.option
    return {**plain, "options": sorted(name for name, _ in options), **shown}


def assignment(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return int(text)


def size_bytes(text: str) -> int:
    """Parse a size: `134217728`, `128MiB`."""
    found = _BYTES.fullmatch(text)
    if found is None or int(found[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no size, such as 128MiB")
    return int(found[1]) * _UNITS[found[2]]
