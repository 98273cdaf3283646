"""A broker as a process: handles signals, prints the ready line.

SIGTERM and SIGINT stop the broker in order, from its first moment on. A second signal, or a stop that takes longer than
`STOP_MAX_S`, for example on a disk that does not answer, exits at once (RULES L7). SIGHUP loads changed
certificates.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial

import click
import structlog
import trio

from kafkawire.broker import Broker, BrokerFailed, StartError
from kafkawire.config.broker_config import Config
from kafkawire.deps import real_deps
from kafkawire.run_broker import run_broker

EXIT_AT_ONCE = 130
EXIT_OVERDUE = 1
STOP_MAX_S = 30.0
CLOSED_MAX_S = 5.0
YOUNG_OBJECTS_MAX = 20_000  # as many as the requests in flight on a few hundred connections
M_ARENA_MAX = -8  # parameter of mallopt, in glibc's malloc.h

_log = structlog.get_logger(__name__)


def run(config: Config) -> None:
    """Run a broker until it is told to stop.

    Raises: StartError, BrokerFailed.
    """
    _allow_open_files()
    keep_one_heap()
    guard = threading.Timer(CLOSED_MAX_S, exit_stuck, [os._exit])
    guard.daemon = True
    trio.run(_main, config, guard)
    guard.cancel()


def _allow_open_files() -> None:
    """Raise the limit of open files to the hard limit: each partition and each connection needs one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def keep_one_heap() -> None:
    """Use one heap for all threads. Call it before there are threads.

    Otherwise each thread would keep a heap with the megabytes that it once needed to read from a tier. Threads take
    turns at the interpreter, and so seldom contend for the heap. Without glibc nothing is done.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, 1)


def spare_collector() -> None:
    """Exempt the ready broker's objects from garbage collection, and collect less often.

    These objects stay, and requests leave no cycles: a search for garbage would take tens of milliseconds and find
    none. Cycles of errors are few and wait a little longer.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS_MAX)


async def _main(config: Config, guard: threading.Timer) -> None:
    """Run the broker. `guard` is started when it is closed: work that waits for a disk may still keep its thread."""
    deps = real_deps()
    failure: Exception | None = None
    stop = trio.Event()
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop_on_signals, stop, signals, os._exit)
            nursery.start_soon(exit_when_overdue, stop, os._exit)
            try:
                await run_broker(config, deps, partial(_is_ready, nursery), stop)
            except (StartError, BrokerFailed) as error:
                failure = error
            nursery.cancel_scope.cancel()
    guard.start()
    deps.pool.close()
    if failure is not None:
        raise failure


def _is_ready(nursery: trio.Nursery, broker: Broker) -> None:
    if broker.tls.listeners:  # otherwise SIGHUP ends the process, as when its terminal closes
        nursery.start_soon(reload_on_hangups, broker.tls.reload_soon)
    spare_collector()
    click.echo(ready_line(broker))


def ready_line(broker: Broker) -> str:
    """The line on standard output that says that the broker serves, with its listeners."""
    kafka = [f"{name}://{listener.address[0]}:{listener.address[1]}" for name, listener in broker.listeners.items()]
    return " ".join(["kafkawire ready:", *kafka, *broker.http_urls])


async def stop_on_signals(stop: trio.Event, signals: AsyncIterator[int], leave: Callable[[int], object]) -> None:
    """Count signals, even if the broker stops for another reason: the first one stops in order, the second exits."""
    await anext(signals)
    stop.set()
    await anext(signals)
    leave(EXIT_AT_ONCE)


async def reload_on_hangups(reload_soon: Callable[[], None]) -> None:
    """Load changed certificates at each SIGHUP."""
    with trio.open_signal_receiver(signal.SIGHUP) as hangups:
        async for _ in hangups:
            reload_soon()


async def exit_when_overdue(stop: trio.Event, leave: Callable[[int], object]) -> None:
    """Exit if the stop takes too long: a worker that waits for a disk cannot be cancelled."""
    await stop.wait()
    await trio.sleep(STOP_MAX_S)
    _log.error("not stopped in time, exiting", after_s=STOP_MAX_S)
    leave(EXIT_OVERDUE)


def exit_stuck(leave: Callable[[int], object]) -> None:
    """Exit without a thread that waits for a disk. The broker is closed."""
    _log.error("exiting with unfinished disk work", after_s=CLOSED_MAX_S)
    leave(EXIT_OVERDUE)
