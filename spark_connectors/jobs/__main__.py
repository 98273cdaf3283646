"""Entry point of `kafkawire-spark`.

Exit codes: 0, the job is complete and found nothing wrong; 1, a check found a difference, or the job stopped early and
may be run again; 2, the request is unclear or impossible. The reason is one line on standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

from spark_connectors.jobs.cli.common import Refused, add_run
from spark_connectors.jobs.importing.errors import ImportRefused
from spark_connectors.jobs.report import JobOutcome, ProgressLine, Report
from spark_connectors.jobs.session import Session
from spark_connectors.jobs.table_names import NameRefused
from spark_connectors.jobs.tables.errors import SchemaRefused, TableRefused
from spark_connectors.jobs.workers import LocalWorkers, OneByOne, SparkWorkers, Workers
from spark_connectors.options import OptionRefused
from spark_connectors.source.bounds import LimitRefused

COMMANDS: Final = ("audit", "diff", "export", "import_", "verify")  # modules of `cli`
DONE, COMPLAINT, REFUSED = 0, 1, 2
_SHOWN: Final = 3  # findings in the line on standard error
REFUSALS: Final = (Refused, NameRefused, OptionRefused, LimitRefused, SchemaRefused, TableRefused, ImportRefused)


def main(words: Sequence[str] | None = None) -> int:
    """Run one job; returns the exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    commands = _commands(sys.argv[1:] if words is None else words)
    arguments = _parser(commands).parse_args(words)
    started_s = time.monotonic()
    session = _session(arguments)
    try:
        report = commands[arguments.job].run(arguments, session)
    except REFUSALS as error:
        _print_line(f"{arguments.job}: {error}")
        return REFUSED
    except Exception as error:  # of a store, a broker or a task: the target keeps the work that is done
        report = Report(arguments.job, {}, JobOutcome.STOPPED, reason=f"{type(error).__name__}: {error}")
    finally:
        session.workers.close()
    return _write_report(report, arguments, time.monotonic() - started_s)


def _commands(words: Sequence[str]) -> dict[str, ModuleType]:
    """The module of the requested job, because other modules have more to import; without a known job, all modules."""
    names = [name for name in COMMANDS if name.rstrip("_") in words[:1]] or COMMANDS
    modules = [import_module(f"spark_connectors.jobs.cli.{name}") for name in names]
    return {module.NAME: module for module in modules}


def _parser(commands: dict[str, ModuleType]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("kafkawire-spark", description="Jobs of a pipeline: docs/jobs.md.")
    each = parser.add_subparsers(dest="job", required=True)
    for name, command in commands.items():
        one = each.add_parser(name, help=command.HELP, description=command.HELP)
        command.add_arguments(one)
        add_run(one)
    return parser


def _session(arguments: argparse.Namespace) -> Session:
    show = (lambda _: None) if arguments.quiet else _print_line
    return Session(_workers(arguments), ProgressLine(show, time.monotonic), arguments.dry_run)


def _workers(arguments: argparse.Namespace) -> Workers:
    if arguments.spark:
        from pyspark.sql import SparkSession

        from spark_connectors import register

        session = SparkSession.builder.getOrCreate()
        register(session)
        return SparkWorkers(session)
    count = arguments.workers or os.cpu_count() or 1
    return LocalWorkers(count) if count > 1 else OneByOne()


def _write_report(report: Report, arguments: argparse.Namespace, seconds: float) -> int:
    text = report.to_json(seconds)
    if arguments.report == "-":
        sys.stdout.write(text)
    elif arguments.report is not None:
        Path(arguments.report).write_text(text, encoding="utf-8")
    if report.reason is not None:
        _print_line(f"{report.job}: {report.reason}")
    elif arguments.dry_run:
        counts = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in report.counts.items())
        _print_line(f"{report.job}: dry run, nothing was changed{': ' if counts else ''}{counts}")
    if report.outcome is JobOutcome.DIFFERS:
        count = len(report.findings) + report.findings_left_out
        _print_line(f"{report.job}: {count} findings: {', '.join(map(json.dumps, report.findings[:_SHOWN]))}")
    return DONE if report.outcome is JobOutcome.DONE else COMPLAINT


def _print_line(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _leave(number: int, _: object) -> None:
    """Exit by an exception, so that open resources are released."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
