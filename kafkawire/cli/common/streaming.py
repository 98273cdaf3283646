"""Shared by the commands that stream: standard input and output in threads, an end by Ctrl-C, progress.

Reads and writes are system calls in a thread that is abandoned at the end: neither an idle terminal nor a slow reader
holds up the end. This module does not know the meaning of the bytes.
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

from kafkawire.cli.common.cluster_command import Report, printable, show
from kafkawire.client.errors import ClientError

EXIT_INTERRUPTED: Final = 130
READ_MAX_BYTES: Final = 256 * 1024
_PROGRESS_EVERY_S: Final = 1.0
_POLL_INTERVAL_S: Final = 0.5


class Input:
    """Standard input, unbuffered: the lock of a buffered file would stay with the abandoned thread."""

    def __init__(self) -> None:
        """Raises ClientError if standard input is closed."""
        stream = _buffer(sys.stdin, "input")
        self._file: BinaryIO = getattr(stream, "raw", stream)

    async def read(self) -> bytes:
        """Available bytes, as soon as there are some; empty at the end."""
        while (found := await self._read()) is None:  # it is non-blocking, and empty yet
            await trio.lowlevel.wait_readable(self._file.fileno())
        return found

    async def _read(self) -> bytes | None:
        return await trio.to_thread.run_sync(self._file.read, READ_MAX_BYTES, abandon_on_cancel=True)


class Output:
    """Standard output. Raises BrokenPipeError when its reader has closed it."""

    def __init__(self) -> None:
        """Raises ClientError if standard output is closed."""
        stream = _buffer(sys.stdout, "output")
        self._file: BinaryIO = getattr(stream, "raw", stream)

    async def write(self, data: bytes | bytearray) -> None:
        await trio.to_thread.run_sync(self._write, data, abandon_on_cancel=True)

    def _write(self, data: bytes | bytearray) -> None:
        rest = memoryview(data)
        while rest:
            written: int | None = self._file.write(rest)
            if written is None:  # it is non-blocking, and full
                select.select([], [self._file], [])
            else:
                rest = rest[written:]

    def has_no_reader(self) -> bool:
        """Whether it is a pipe without a reader. A write would show it, but there may be nothing to write."""
        try:
            descriptor = self._file.fileno()
        except OSError:  # it is in memory
            return False
        poll = select.poll()
        poll.register(descriptor, 0)  # errors are always reported
        return any(event & select.POLLERR for _, event in poll.poll(0))


def _buffer(stream: TextIO | None, name: str) -> BinaryIO:
    if stream is None:  # it was closed before the start
        raise ClientError(f"there is no standard {name}")
    return stream.buffer


class Progress:
    """Counts of records and bytes, shown on one line of standard error that is overwritten."""

    def __init__(self, wanted: bool) -> None:
        self.records = 0
        self.size_bytes = 0
        self._wanted = wanted

    def add(self, records: int, size_bytes: int) -> None:
        self.records += records
        self.size_bytes += size_bytes

    def so_far(self) -> tuple[int, int]:
        """Counts of records and bytes."""
        return self.records, self.size_bytes

    async def show(self) -> None:
        """Show the counts until cancelled."""
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
    """Whether to show progress: the stream is no terminal, and standard error is one."""
    return sys.stderr.isatty() and not stream.isatty()


def run_until_stopped(
    work: Callable[[], Awaitable[None]], progress: Progress, is_enough: Callable[[], bool] = lambda: False
) -> bool:
    """Run `work` until it ends, `is_enough` says so, or SIGINT or SIGTERM comes. Return whether no signal did.

    Raises ClientError.
    """
    return trio.run(partial(_until_stopped, work, progress, is_enough))


def run_and_report(
    work: Callable[[], Awaitable[None]], progress: Progress, report: Callable[[], Report], *, as_json: bool
) -> int:
    """Run `work`, print the report of its results, however it ended, and return the exit code."""
    problems = []
    code = 0
    try:
        if not run_until_stopped(work, progress):
            code = EXIT_INTERRUPTED
    except ClientError as error:
        problems.append(printable(str(error)))
        code = 1
    result = report()
    result.problems = problems
    show(result, as_json=as_json)
    return code


async def _until_stopped(
    work: Callable[[], Awaitable[None]], progress: Progress, is_enough: Callable[[], bool]
) -> bool:
    failed: ClientError | None = None
    finished = False
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(progress.show)
            nursery.start_soon(_cancel_on_signal, signals.__anext__, nursery.cancel_scope)
            nursery.start_soon(_cancel_when, is_enough, nursery.cancel_scope)
            try:
                await work()
                finished = True
            except BrokenPipeError:  # the reader has closed it
                finished = True
            except OSError as error:
                failed = ClientError(f"input or output: {error.strerror or error}")
            except ClientError as error:
                failed = error
            nursery.cancel_scope.cancel()
    if failed is not None:
        raise failed
    return finished or is_enough()


async def _cancel_when(is_enough: Callable[[], bool], work: trio.CancelScope) -> None:
    while not is_enough():  # noqa: ASYNC110 - there is no event for it
        await trio.sleep(_POLL_INTERVAL_S)
    work.cancel()


async def _cancel_on_signal(signalled: Callable[[], Awaitable[int]], work: trio.CancelScope) -> None:
    await signalled()
    work.cancel()
