"""What a query ends with because of what happened to its topics."""

from __future__ import annotations

import logging

_log = logging.getLogger(__name__)


class DataLoss(Exception):
    """Offsets that were to be read are not there any more."""


class Unread(Exception):
    """Records that are there were not given out in time."""


def report_loss(text: str, *, fails: bool) -> None:
    """Raises DataLoss, or warns."""
    if fails:
        raise DataLoss(
            f"KAFKA_DATA_LOSS: {text}. Some data may have been lost: it was aged out, or a topic was deleted before "
            "all of it was read. To go on behind it, set the option failOnDataLoss to false"
        )
    _log.warning("%s: some data may have been lost", text)
