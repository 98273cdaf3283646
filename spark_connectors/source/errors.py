"""Errors of topics that end a query."""

from __future__ import annotations

import logging

_log = logging.getLogger(__name__)


class DataLoss(Exception):
    """Offsets to read do not exist any more."""


class Unread(Exception):
    """Existing records were not received in time."""


def report_loss(text: str, *, fails: bool) -> None:
    """Report lost data: raises DataLoss, or logs a warning."""
    if fails:
        raise DataLoss(
            f"KAFKA_DATA_LOSS: {text}. Some data may have been lost: it was aged out, or a topic was deleted before "
            "all of it was read. To go on behind it, set the option failOnDataLoss to false"
        )
    _log.warning("%s: some data may have been lost", text)
