"""The served APIs: a module for each, named as its message module, and the table of them.

A module has `handle`, which answers a request, `refuse`, which makes a response with an error of the whole request, and
`API`, its row in the table. The table alone decides what is served: dispatch, ApiVersions and docs/protocol.md read it.
The versions are those that Apache Kafka 4.4.0 calls stable.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkawire.requests.api import Api


def _declared() -> Iterator[Api]:
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        if not module.ispkg:
            yield import_module(module.name).API


API_TABLE: tuple[Api, ...] = tuple(sorted(_declared(), key=lambda api: api.key))
