"""What commands that stream have in common: standard input and output off the loop, an end by Ctrl-C, progress.

Reads and writes are system calls in a thread that may be left behind: a terminal where nobody types and a reader who
does not read hold nothing up. It refuses to know what the bytes are.
"""

from __future__ import annotations

import select
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import BinaryIO, Final, TextIO

import click
import trio

from kafkawire.cli.cluster_command import Report, printable, show
from kafkawire.client.errors import ClientError

EXIT_INTERRUPTED: Final = 130
READ_MAX_BYTES: Final = 256 * 1024
_PROGRESS_EVERY_S: Final = 1.0
_LOOK_EVERY_S: Final = 0.5


class Input:
    """Standard input. A buffered file would keep its lock with the thread that is left behind."""

    def __init__(self) -> None:
        """Raises ClientError."""
        stream = _buffer(sys.stdin, "input")
        self._file: BinaryIO = getattr(stream, "raw", stream)

    async def read(self) -> bytes:
        """What is there, as soon as something is; nothing at the end."""
        while (found := await self._read()) is None:  # somebody made it non-blocking, and nothing is there yet
            await trio.lowlevel.wait_readable(self._file.fileno())
        return found

    async def _read(self) -> bytes | None:
        return await trio.to_thread.run_sync(self._file.read, READ_MAX_BYTES, abandon_on_cancel=True)


class Output:
    """Standard output. Raises BrokenPipeError when its reader has enough."""

    def __init__(self) -> None:
        """Raises ClientError."""
        stream = _buffer(sys.stdout, "output")
        self._file: BinaryIO = getattr(stream, "raw", stream)

    async def write(self, data: bytes | bytearray) -> None:
        await trio.to_thread.run_sync(self._write, data, abandon_on_cancel=True)

    def _write(self, data: bytes | bytearray) -> None:
        rest = memoryview(data)
        while rest:
            written: int | None = self._file.write(rest)
            if written is None:  # somebody made it non-blocking, and it is full
                select.select([], [self._file], [])
            else:
                rest = rest[written:]

    def has_no_reader(self) -> bool:
        """Whether it is a pipe that nobody reads any more: to write would tell, but there may be nothing to write."""
        try:
            descriptor = self._file.fileno()
        except OSError:  # it is in memory
            return False
        poll = select.poll()
        poll.register(descriptor, 0)  # errors are told always
        return any(event & select.POLLERR for _, event in poll.poll(0))


def _buffer(stream: TextIO | None, name: str) -> BinaryIO:
    if stream is None:  # it was closed before we began
        raise ClientError(f"there is no standard {name}")
    return stream.buffer


class Progress:
    """How many records and bytes so far, on one line of standard error that is written anew."""

    def __init__(self, wanted: bool) -> None:
        self.records = 0
        self.size_bytes = 0
        self._wanted = wanted

    def add(self, records: int, size_bytes: int) -> None:
        self.records += records
        self.size_bytes += size_bytes

    def so_far(self) -> tuple[int, int]:
        """Records and bytes."""
        return self.records, self.size_bytes

    async def show(self) -> None:
        """Until it is cancelled."""
        began = time.monotonic()
        try:
            while self._wanted:
                await trio.sleep(_PROGRESS_EVERY_S)
                records, size_bytes = self.so_far()
                rate = records / (time.monotonic() - began)
                text = f"{records:,} records, {size_bytes / 1e6:,.1f} MB, {rate:,.0f} records/s"
                click.echo(f"\r{text:<60}", err=True, nl=False)
        finally:
            if self._wanted:
                click.echo("\r" + " " * 60 + "\r", err=True, nl=False)


def is_long_work(stream: TextIO) -> bool:
    """Nobody types or reads there, and somebody looks at standard error."""
    return sys.stderr.isatty() and not stream.isatty()


def run_until_stopped(
    work: Callable[[], Awaitable[None]], progress: Progress, is_enough: Callable[[], bool] = lambda: False
) -> bool:
    """Whether it came to its end, or to where it `is_enough`: SIGINT and SIGTERM end it, too. Raises ClientError."""
    return trio.run(partial(_until_stopped, work, progress, is_enough))


def run_and_tell(
    work: Callable[[], Awaitable[None]], progress: Progress, report: Callable[[], Report], *, as_json: bool
) -> int:
    """The exit code. What has been done is told, whatever ended it."""
    problems = []
    code = 0
    try:
        if not run_until_stopped(work, progress):
            code = EXIT_INTERRUPTED
    except ClientError as error:
        problems.append(printable(str(error)))
        code = 1
    told = report()
    told.problems = problems
    show(told, as_json=as_json)
    return code


async def _until_stopped(
    work: Callable[[], Awaitable[None]], progress: Progress, is_enough: Callable[[], bool]
) -> bool:
    failed: ClientError | None = None
    finished = False
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(progress.show)
            nursery.start_soon(_stop_on, signals.__anext__, nursery.cancel_scope)
            nursery.start_soon(_stop_when, is_enough, nursery.cancel_scope)
            try:
                await work()
                finished = True
            except BrokenPipeError:  # the reader has enough
                finished = True
            except OSError as error:
                failed = ClientError(f"input or output: {error.strerror or error}")
            except ClientError as error:
                failed = error
            nursery.cancel_scope.cancel()
    if failed is not None:
        raise failed
    return finished or is_enough()


async def _stop_when(is_enough: Callable[[], bool], work: trio.CancelScope) -> None:
    while not is_enough():  # noqa: ASYNC110 - the system tells nobody
        await trio.sleep(_LOOK_EVERY_S)
    work.cancel()


async def _stop_on(signalled: Callable[[], Awaitable[int]], work: trio.CancelScope) -> None:
    await signalled()
    work.cancel()
