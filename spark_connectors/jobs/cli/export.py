"""Arguments of `kafkawire-spark export`, which appends rows of a topic to a table."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from spark_connectors.jobs.cli.common import (
    Refused,
    add_table_options,
    add_topic,
    shown_arguments,
    size_bytes,
    table_of,
    topic_options,
)
from spark_connectors.jobs.declared import DeclarationRefused, declared
from spark_connectors.jobs.export.driver import Export, Target
from spark_connectors.jobs.export.wanted import plan_export
from spark_connectors.jobs.report import Report
from spark_connectors.jobs.session import Session
from spark_connectors.jobs.table_names import TableName
from spark_connectors.jobs.table_rows import ORIGIN_COLUMNS, Form, JsonForm, RawForm, Tombstones
from spark_connectors.jobs.tables.api import check_job
from spark_connectors.options import duration_s
from spark_connectors.source.options import Edge, Limit, SourceOptions

NAME: Final = "export"
HELP: Final = "Appends rows of a topic to a table, each once."
FILE_BYTES: Final = 128 << 20
_LATEST: Final = "latest"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_topic(parser)
    parser.add_argument(
        "--to", required=True, metavar="TABLE", help="table to append to; it is created if it does not exist"
    )
    add_table_options(parser)
    add_form(parser)
    parser.add_argument(
        "--dead-letters", metavar="TABLE", help="table of values that cannot be decoded; the default is TABLE~dlq"
    )
    parser.add_argument(
        "--file-size", type=size_bytes, default=FILE_BYTES, metavar="SIZE", help="size of a file; the default is 128MiB"
    )
    parser.add_argument(
        "--starting",
        metavar="earliest|latest|JSON",
        help="start of a job without progress: earliest (default), latest, or JSON as in the option startingOffsets",
    )
    parser.add_argument(
        "--sweep",
        type=age_s,
        metavar="AGE",
        help="delete files that no commit names and that are at least this old, such as 7d",
    )


def add_form(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for `form_of` and `job_of`: the form of the rows, and the name of the job."""
    parser.add_argument(
        "--job",
        dest="job_name",
        metavar="NAME",
        help="name under which the table remembers the progress; the default is the topic",
    )
    parser.add_argument("--form", choices=["raw", "json"], default="raw")
    parser.add_argument(
        "--schema", type=Path, metavar="FILE", help="file that declares the columns of JSON values: docs/jobs.md"
    )
    parser.add_argument(
        "--tombstones",
        choices=list(map(str, Tombstones)),
        help="treatment of null values: dead letters (default) or skipped",
    )


def run(arguments: argparse.Namespace, session: Session) -> Report:
    """See `spark_connectors.jobs.cli.common.Command`."""
    options, starting = source_of(arguments)
    name = table_of(arguments.to, arguments)
    dead_name = dead_letters_of(arguments, name)
    target = Target(
        job_of(arguments), form_of(arguments), name.opened(), None if dead_name is None else dead_name.opened()
    )
    report = Report(
        NAME, shown_arguments(arguments, table=str(name), table_of_dead_letters=dead_name and str(dead_name))
    )
    (target.check if session.is_dry_run else target.create)()
    wanted = plan_export(options, starting, target.job, target.progress())
    report.add(offsets_to_export=wanted.offsets)
    if session.is_dry_run:
        return report

    def show_progress(offsets: int, rows: int, *, is_last: bool = False) -> None:
        session.progress.update(NAME, offsets, wanted.offsets, rows, is_last=is_last)

    job = Export(options, target, wanted, session.workers, file_bytes=arguments.file_size, on_progress=show_progress)
    job.run()
    found = job.totals
    show_progress(found.offsets, found.rows, is_last=True)
    report.add(
        offsets=found.offsets,
        rows=found.rows,
        dead_letters=found.dead_letters,
        skipped=found.skipped,
        files=found.files,
        file_bytes=found.file_bytes,
        commits=found.commits,
    )
    if arguments.sweep is not None:
        report.add(swept=target.sweep(arguments.sweep))
    return report


def age_s(text: str) -> float:
    """Parse an age: `7d`, `12h`."""
    try:
        return duration_s(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def job_of(arguments: argparse.Namespace) -> str:
    """Raises Refused."""
    job: str = arguments.topic if arguments.job_name is None else arguments.job_name
    try:
        check_job(job)
    except ValueError as error:
        raise Refused(f"--job: {error}") from None
    return job


def form_of(arguments: argparse.Namespace) -> Form:
    """Raises Refused."""
    if arguments.form == "raw":
        for name in ("schema", "tombstones"):
            if getattr(arguments, name) is not None:
                raise Refused(f"--{name} says nothing without --form json")
        return RawForm()
    if arguments.schema is None:
        raise Refused("--form json needs a --schema")
    try:
        columns = declared(arguments.schema.read_text(encoding="utf-8"), taken=ORIGIN_COLUMNS)
    except (OSError, UnicodeDecodeError, DeclarationRefused) as error:
        raise Refused(f"--schema {arguments.schema}: {error}") from None
    return JsonForm(columns, Tombstones(arguments.tombstones or Tombstones.DEAD))


def dead_letters_of(arguments: argparse.Namespace, name: TableName) -> TableName | None:
    """Table for rows that cannot be in the export table; None: all rows can. Raises Refused, NameRefused."""
    if arguments.form == "raw":
        if arguments.dead_letters is not None:
            raise Refused("--dead-letters: raw rows need not be decoded, so there are none")
        return None
    found = name.dead_letters() if arguments.dead_letters is None else table_of(arguments.dead_letters, arguments)
    if str(found) == str(name):
        raise Refused("--dead-letters: they cannot go into the table that they are no rows of")
    return found


def source_of(arguments: argparse.Namespace) -> tuple[SourceOptions, Limit]:
    """Options of the source, and the start of a job without progress."""
    starting = arguments.starting
    if starting is not None and any(name.lower().startswith("starting") for name, _ in arguments.option):
        raise Refused("--starting: an option says where to start, too")
    has_limit = starting is not None and starting.lower() != _LATEST  # latest is no valid start of a batch query
    options = topic_options(arguments, **({"startingOffsets": starting} if has_limit else {}))
    if options.min_partitions is not None or options.max_records_per_partition is not None:
        raise Refused("minPartitions, maxRecordsPerPartition: a task has as much as a file is to have, see --file-size")
    return options, options.starting if starting is None or has_limit else Edge.LATEST
