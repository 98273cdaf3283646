"""Arguments of `kafkawire-spark import`, which fills a topic from another cluster."""

from __future__ import annotations

import argparse
from typing import Final

from spark_connectors.jobs.cli.common import Refused, add_topic, shown_arguments, topic_options
from spark_connectors.jobs.importing.job import Import, ImportRequest
from spark_connectors.jobs.importing.topics import cluster_of
from spark_connectors.jobs.report import Report
from spark_connectors.jobs.session import Session
from spark_connectors.options import KAFKA_PREFIX
from spark_connectors.source.options import source_options

NAME: Final = "import"
HELP: Final = "fill a topic with the records of one of another cluster, with their offsets or with a map of them"

_ISOLATION: Final = f"{KAFKA_PREFIX}isolation.level"
_COMMITTED: Final = "read_committed"
_READING: Final = frozenset(  # options of the source that an import accepts
    {"failondataloss", "fetchoffset.numretries", "fetchoffset.retryintervalms", "kafkaconsumer.polltimeoutms"}
)
_HTTP_PORT: Final = 9644


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments. `-b` is the target; `--topic` and `--option` belong to the source."""
    add_topic(parser)
    parser.add_argument("--from-bootstrap", required=True, metavar="HOST:PORT[,…]", help="brokers of the source")
    parser.add_argument(
        "--to-topic", metavar="NAME", help="name of the topic in the target; the default is the same name"
    )
    parser.add_argument(
        "--to-http",
        metavar="URL[,…]",
        help=f"HTTP listener of the target, reached by a loopback address; port {_HTTP_PORT} of its first broker",
    )
    parser.add_argument(
        "--groups", nargs="+", default=[], metavar="GROUP", help="groups whose committed offsets are copied"
    )
    parser.add_argument(
        "--offset-map",
        metavar="FILE",
        help="let offsets change if they cannot stay, and write the new offsets to this file",
    )
    parser.add_argument(
        "--job",
        dest="job_name",
        metavar="NAME",
        help="name of an import that lets offsets change; the default comes from the topics",
    )


def run(arguments: argparse.Namespace, session: Session) -> Report:
    """See Command."""
    request = import_request(arguments)
    shown = {
        "from_bootstrap": arguments.from_bootstrap,
        "to_topic": request.to_topic,
        "groups": list(request.groups),
        "offset_map": request.map_path,
    }
    report = Report(NAME, shown_arguments(arguments, **shown))
    with cluster_of(request.source) as source, cluster_of(request.target) as target:
        Import(request, source, target, session, report).run()
    return report


def import_request(arguments: argparse.Namespace) -> ImportRequest:
    """Raises Refused, OptionRefused."""
    options = {name.lower(): value for name, value in arguments.option}
    if options.get(_ISOLATION, _COMMITTED) != _COMMITTED:
        raise Refused(f"{_ISOLATION}: an import reads committed records only")
    if others := sorted(name for name in options if name not in _READING and not name.startswith(KAFKA_PREFIX)):
        raise Refused(f"{', '.join(others)}: an import fetches all that is committed")
    if arguments.bootstrap_server is None:
        raise Refused("-b says where to import to")
    if arguments.spark:
        raise Refused("an import writes from this machine: --spark is not for it")
    to_topic = arguments.to_topic or arguments.topic
    theirs = argparse.Namespace(**{**vars(arguments), "bootstrap_server": arguments.from_bootstrap})
    source = topic_options(theirs, **{_ISOLATION: _COMMITTED})
    target = source_options(
        {f"{KAFKA_PREFIX}bootstrap.servers": arguments.bootstrap_server, "subscribe": to_topic}, is_stream=False
    )
    host = target.bootstrap[0].host
    urls = arguments.to_http or f"http://{f'[{host}]' if ':' in host else host}:{_HTTP_PORT}"
    return ImportRequest(
        source,
        arguments.topic,
        target,
        to_topic,
        tuple(url.strip().rstrip("/") for url in urls.split(",") if url.strip()),
        tuple(arguments.groups),
        arguments.offset_map,
        arguments.job_name or f"{arguments.topic}-to-{to_topic}",
    )
