"""Ids of clusters, topics and registrations of brokers, as Kafka makes them."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from random import Random


def new_id(random: Random) -> bytes:
    """A random UUID that needs no quoting on a command line: Kafka's Uuid.randomUuid avoids a leading '-' too.

    Version 4 leaves out zero and the few ids that Kafka reserves.
    """
    while True:
        made = UUID(int=random.getrandbits(128), version=4).bytes
        if not id_text(made).startswith("-"):
            return made


def id_text(uuid: bytes) -> str:
    """The 22 characters in which Kafka writes a UUID."""
    return base64.urlsafe_b64encode(uuid).decode().rstrip("=")
