"""Arguments of `kafkawire-spark audit`, which checks a topic's bytes."""

from __future__ import annotations

import argparse
from typing import Final

from spark_connectors.jobs.audit.driver import audit
from spark_connectors.jobs.cli.common import add_topic, shown_arguments, topic_options
from spark_connectors.jobs.report import Report
from spark_connectors.jobs.session import Session
from spark_connectors.jobs.topic_log import TopicLog

NAME: Final = "audit"
HELP: Final = "Checks the bytes of a topic, in files, objects, and as brokers send them."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See Command."""
    add_topic(parser)
    parser.add_argument("--records", action="store_true", help="check every record too, and not only the batches")


def run(arguments: argparse.Namespace, session: Session) -> Report:
    """See Command."""
    options = topic_options(arguments)
    report = Report(NAME, shown_arguments(arguments, records=arguments.records))
    with TopicLog(options) as log:
        audit(log, report, session, has_records=arguments.records)
    return report
