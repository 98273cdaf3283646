"""Arguments of `kafkawire-spark verify`, which compares a topic with its table."""

from __future__ import annotations

import argparse
from typing import Final

from spark_connectors.jobs.cli.common import (
    add_table_options,
    add_topic,
    shown_arguments,
    table_of,
    topic_options,
)
from spark_connectors.jobs.cli.export import add_form, dead_letters_of, form_of, job_of
from spark_connectors.jobs.comparison import verify
from spark_connectors.jobs.report import Report
from spark_connectors.jobs.session import Session
from spark_connectors.jobs.topic_log import TopicLog

NAME: Final = "verify"
HELP: Final = "Compares a topic with a table that it was exported to."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See Command."""
    add_topic(parser)
    parser.add_argument("--table", required=True, metavar="TABLE", help="table of the export")
    add_table_options(parser)
    add_form(parser)
    parser.add_argument(
        "--dead-letters", metavar="TABLE", help="table of dead letters of the export; the default is TABLE~dlq"
    )
    parser.add_argument(
        "--starting", metavar="OFFSETS", help="start of the export: earliest, or JSON as in the option startingOffsets"
    )
    parser.add_argument(
        "--compacted",
        action="store_true",
        help="the topic is compacted: rows of the table may be gone from the log",
    )


def run(arguments: argparse.Namespace, session: Session) -> Report:
    """See Command."""
    name, form = table_of(arguments.table, arguments), form_of(arguments)
    job = job_of(arguments)
    letters = dead_letters_of(arguments, name)
    exported = verify.Exported(job, name.opened(), form, None if letters is None else letters.opened())
    options = topic_options(
        arguments, **({} if arguments.starting is None else {"startingOffsets": arguments.starting})
    )
    report = Report(NAME, shown_arguments(arguments, table=str(name), job=job, form=arguments.form))
    with TopicLog(options) as log:
        verify.verify(log, exported, report, session, is_compacted=arguments.compacted)
    return report
