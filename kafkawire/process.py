"""One broker as a process: signals in, the ready line out.

SIGTERM and SIGINT stop the broker in order; a second one exits at once (RULES L7).
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator

import click
import trio

from kafkawire.broker import Broker, BrokerFailed, StartError, real_surroundings, run_broker
from kafkawire.config import Config

EXIT_AT_ONCE = 130


def run(config: Config) -> None:
    """Runs a broker until it is told to stop.

    Raises: StartError, BrokerFailed.
    """
    trio.run(_main, config)


async def _main(config: Config) -> None:
    world = real_surroundings()
    ended: Exception | None = None
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:

            def announce(broker: Broker) -> None:
                click.echo(ready_line(broker))
                nursery.start_soon(_stop_on_signals, broker, signals)

            try:
                await run_broker(config, world, announce)
            except (StartError, BrokerFailed) as error:
                ended = error
            nursery.cancel_scope.cancel()
    world.pool.close()
    if ended is not None:
        raise ended


def ready_line(broker: Broker) -> str:
    """The one line on standard output that says the broker serves, and where."""
    kafka = [f"{name}://{listener.address[0]}:{listener.address[1]}" for name, listener in broker.listeners.items()]
    return " ".join(["kafkawire ready:", *kafka, *broker.http_urls])


async def _stop_on_signals(broker: Broker, signals: AsyncIterator[int]) -> None:
    async for _ in signals:
        if not broker.is_live:
            os._exit(EXIT_AT_ONCE)
        broker.stop.set()
