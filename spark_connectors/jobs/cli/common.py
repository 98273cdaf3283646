"""What jobs have in common on the command line: which topic, who works, what is told."""

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
    """A command line that is clear, and asks for what cannot be had."""


class Command(Protocol):
    """One job."""

    NAME: str
    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...
    def run(self, arguments: argparse.Namespace, session: Session) -> Report:
        """Raises Refused, and other refusals, for what cannot be had; whatever else it raises, it may be run again."""


def add_topic(parser: argparse.ArgumentParser) -> None:
    """A topic, and how it is read: by `topic_options`."""
    parser.add_argument("--topic", required=True)
    add_source(parser)


def add_source(parser: argparse.ArgumentParser) -> None:
    """How topics are read."""
    parser.add_argument("-b", "--bootstrap-server", metavar="HOST:PORT[,…]", help="brokers to ask first")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        type=assignment,
        metavar="NAME=VALUE",
        help="an option of the source, such as segments or kafka.isolation.level",
    )


def add_run(parser: argparse.ArgumentParser) -> None:
    """Who works, and what is told."""
    workers = parser.add_mutually_exclusive_group()
    workers.add_argument("--workers", type=positive, help="processes of this machine; one a processor")
    workers.add_argument("--spark", action="store_true", help="have a session of Spark's do the tasks")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and change nothing")
    parser.add_argument("--report", metavar="FILE", help="where to write what was done, as JSON; - is standard output")
    parser.add_argument("--quiet", action="store_true", help="do not tell how far it is")


def add_table_options(parser: argparse.ArgumentParser) -> None:
    """For `table_of`."""
    parser.add_argument(
        "--table-option",
        action="append",
        default=[],
        type=assignment,
        metavar="NAME=VALUE",
        help="a storage option of deltalake, or a property of pyiceberg's catalog",
    )


def topic_options(arguments: argparse.Namespace, **more: str) -> SourceOptions:
    """All rows of a topic with all their columns, as far as the arguments do not say otherwise. Raises Refused for an
    option that arguments stand for, OptionRefused for one that the source refuses."""
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


def asked_of(arguments: argparse.Namespace, **shown: Any) -> Mapping[str, Any]:
    """For a report: what `shown` says, and the arguments that have no secrets in them. Options are told by name."""
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
    """`134217728`, `128MiB`."""
    found = _BYTES.fullmatch(text)
    if found is None or int(found[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no size, such as 128MiB")
    return int(found[1]) * _UNITS[found[2]]
