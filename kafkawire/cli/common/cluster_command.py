"""Shared by the commands that ask a cluster: three options, a deadline, output and failures.

Such a command returns a Work, which is run here with a Cluster and returns a Report. Results go to standard output, as
a table or as JSON. Remarks and errors go to standard error, and an error makes the exit code 1.
"""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial, update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from kafkawire.client.cluster import Cluster
    from kafkawire.client.connection import Connect

T = TypeVar("T")

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
DEFAULT_TIMEOUT_S: Final = 30.0


@dataclass(slots=True)
class Report:
    """Result of a command. `document` is its JSON form. Without `columns`, the table is bare lines."""

    document: object
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()
    remarks: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


Work = Callable[["Cluster"], Awaitable[Report]]


def _take_command_config(context: click.Context, _: click.Parameter, file: Path | None) -> None:
    """Have the command connect as the file says."""
    if file is None:
        return
    from kafkawire.client.errors import ClientError
    from kafkawire.client.security import configured_connect

    try:
        context.obj, ignored = configured_connect(file)
    except ClientError as error:
        raise click.ClickException(printable(str(error))) from None
    for key in ignored:
        click.echo(printable(f"{file}: {key} has no effect"), err=True)


_bootstrap_option: Final = click.option(
    "-b", "--bootstrap-server", default=DEFAULT_BOOTSTRAP, show_default=True, metavar="HOST:PORT[,...]",
    help="Bootstrap brokers.",
)  # fmt: skip
_command_config_option: Final = click.option(
    "--command-config", type=click.Path(path_type=Path), metavar="FILE", expose_value=False,
    callback=_take_command_config, help="Properties file with the security settings of the connection.",
)  # fmt: skip


def bootstrap_option(function: Callable[..., T]) -> Callable[..., T]:
    """The options of a command that connects to a cluster."""
    return _bootstrap_option(_command_config_option(function))


class Seconds(click.FloatRange):
    """A number of seconds above zero. `nan`, which Python takes for a number, is refused."""

    name = "seconds"

    def __init__(self, at_most: float | None = None) -> None:
        super().__init__(min=0, max=at_most, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        return seconds


timeout_option: Final = click.option(
    "--timeout", "timeout_s", type=Seconds(), default=DEFAULT_TIMEOUT_S,
    show_default=True, metavar="SECONDS", help="Time after which the command gives up.",
)  # fmt: skip
output_option: Final = click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True,
    help="Output format: a table for people, JSON for programs.",
)  # fmt: skip


def parsed(parse: Callable[[str], object]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Callback of a parameter: `parse` applied to its value or values.

    The text of a ValueError becomes the usage error.
    """

    def callback(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        try:
            if isinstance(value, tuple):
                return tuple(map(parse, value))
            return None if value is None else parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return callback


def cluster_command(function: Callable[..., Work]) -> Callable[..., None]:
    """Make a click command of a function: add the options, run the returned Work, show its Report.

    In tests the context's object replaces the function that connects.
    """

    @bootstrap_option
    @output_option
    @timeout_option
    @click.pass_context
    def run(context: click.Context, /, bootstrap_server: str, output: str, timeout_s: float, **arguments: Any) -> None:
        report = _ask(function(**arguments), bootstrap_server, timeout_s, context.obj)
        show(report, as_json=output == "json")
        if report.problems:
            context.exit(1)

    return update_wrapper(run, function)


def _ask(work: Work, bootstrap: str, timeout_s: float, connect: Connect | None) -> Report:
    import trio

    from kafkawire.client.errors import ClientError

    try:
        return trio.run(ask, work, bootstrap, timeout_s, connect)
    except ClientError as error:
        raise click.ClickException(printable(str(error))) from None
    except BaseExceptionGroup as group:  # trio makes it of Ctrl-C during a connect
        if group.subgroup(KeyboardInterrupt) is None:
            raise
        raise click.Abort from None


async def ask(work: Work, bootstrap: str, timeout_s: float, connect: Connect | None) -> Report:
    """Run the work of a command within the timeout. Raises ClientError."""
    from kafkawire.client.cluster import Cluster
    from kafkawire.client.connection import connect_tcp, parse_bootstrap

    async with Cluster(parse_bootstrap(bootstrap), connect or connect_tcp) as cluster:
        return await cluster.run_within(timeout_s, partial(work, cluster))


def show(report: Report, *, as_json: bool) -> None:
    """Print results to standard output, remarks and errors to standard error."""
    if as_json:
        click.echo(json.dumps(report.document, indent=2))
    else:
        for line in table(report.columns, report.rows):
            click.echo(line)
    for remark in report.remarks:
        click.echo(printable(remark), err=True)
    for problem in report.problems:
        click.echo(f"Error: {printable(problem)}", err=True)


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Format rows as lines. Numbers are aligned to the right; None becomes "-"."""
    lines = [["-" if cell is None else printable(str(cell)) for cell in row] for row in rows]
    if columns:
        lines.insert(0, list(columns))
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    align = [
        str.rjust if all(cell is None or isinstance(cell, int) for cell in cells) else str.ljust
        for cells in zip(*rows, strict=True)
    ] or [str.ljust] * len(widths)
    return [
        "  ".join(one(cell, width) for one, cell, width in zip(align, line, widths, strict=True)).rstrip()
        for line in lines
    ]


def printable(text: str) -> str:
    """Escape characters that move the cursor or begin a line: names are chosen by clients."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def shown_time(at_ms: int | None) -> str | None:
    """A record timestamp in ms as UTC text; None if there is no timestamp."""
    if at_ms is None or at_ms < 0:
        return None
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):  # clients may send any number
        return str(at_ms)
