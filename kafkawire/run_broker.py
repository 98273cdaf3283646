"""Run one broker from its start to its end, in order or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from kafkawire.broker import Broker, BrokerFailed, StartError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkawire.config.broker_config import Config
    from kafkawire.deps import Deps


async def run_broker(
    config: Config, deps: Deps, on_ready: Callable[[Broker], None], stop: trio.Event | None = None
) -> None:
    """Run a broker until its `stop` is set, then stop it in order. A cancellation ends it at once, like a crash.

    `on_ready` is called once, when the broker accepts requests. A caller that may stop the broker before that gives
    `stop`, which becomes the broker's. If it is set during the start, the start ends, and no unclean log dir is marked
    clean.

    Raises: StartError, BrokerFailed.
    """
    broker = Broker(config, deps, stop=trio.Event() if stop is None else stop)
    refusal: StartError | None = None
    async with trio.open_nursery() as nursery:
        try:
            with trio.CancelScope() as starting:
                nursery.start_soon(_cancel_at, broker.stop, starting)
                await broker.start(nursery)
            if not starting.cancelled_caught:
                on_ready(broker)
                await broker.drained.wait()
                await broker.close_store()
        except StartError as error:
            refusal = error
            await broker.close_store()
        nursery.cancel_scope.cancel()
    await broker.close_listeners()
    if refusal is not None:
        raise refusal
    if broker.failure is not None:
        raise BrokerFailed(broker.failure)


async def _cancel_at(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
