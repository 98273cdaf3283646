"""The trio shell of the HTTP application: hypercorn on one address, stopped by cancelling."""

from __future__ import annotations

import logging

import trio
from hypercorn.config import Config as HypercornConfig
from hypercorn.trio import serve
from starlette.applications import Starlette


async def serve_http(
    app: Starlette, host: str, port: int, *, task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serves `app` until cancelled and reports the bound URLs once it listens.

    Errors: OSError when the address cannot be bound.
    """
    settings = HypercornConfig()
    settings.bind = [f"{host}:{port}"]
    settings.errorlog = None  # its "Running on" line would stand beside our ready line
    settings.accesslog = None
    settings.graceful_timeout = 1.0
    logging.getLogger("hypercorn.error").propagate = False
    await serve(app, settings, task_status=task_status)  # type: ignore[arg-type]
