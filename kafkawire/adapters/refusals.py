"""A test whether the process of another broker is gone: its system refuses connections to the inter-broker listener."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from coordinator.api import BrokerInfo

TIMEOUT_S = 1.0


def refusals(
    connect: Callable[[str, int], Awaitable[trio.abc.Stream]], listener: str
) -> Callable[[BrokerInfo], Awaitable[bool]]:
    """A function that tries to connect to a broker's endpoint of that listener, at most `TIMEOUT_S`, and returns
    whether the connection was refused. `connect` raises OSError."""

    async def is_refused(broker: BrokerInfo) -> bool:
        endpoint = broker.endpoint(listener)
        if endpoint is None:
            return False
        with trio.move_on_after(TIMEOUT_S):
            try:
                stream = await connect(endpoint.host, endpoint.port)
            except OSError as error:
                return _means_refusal(error)
            await trio.aclose_forcefully(stream)
        return False

    return is_refused


def _means_refusal(error: BaseException | None) -> bool:
    """Whether the error means a refused connection. If a name has several addresses, trio groups their errors, and all
    of them have to be refusals."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_means_refusal, error.exceptions))
    return isinstance(error, ConnectionRefusedError) or (
        isinstance(error, OSError) and error.__cause__ is not None and _means_refusal(error.__cause__)
    )
