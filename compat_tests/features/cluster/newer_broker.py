"""`kafkawire` of a later version: its broker's node in the metadata has a field that today's version does not know."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from coordinator.membership import membership
from coordinator.metadata.nodes import encode_member
from kafkawire.cli import main

if TYPE_CHECKING:
    from coordinator.api import BrokerInfo

FIELD: Final = "of_tomorrow"
VALUE: Final = [1, {"deep": None}]
EXTRA: Final = b'{"of_tomorrow":[1,{"deep":null}]}'


def encode_with_more(broker: BrokerInfo) -> bytes:
    return encode_member(replace(broker, extra=EXTRA))


if __name__ == "__main__":
    vars(membership)["encode_member"] = encode_with_more
    main()
