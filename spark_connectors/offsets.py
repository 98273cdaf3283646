"""Offsets of a query, as the JSON that Spark keeps in its checkpoints.

The JSON is that of the kafka source: `{"topic":{"0":23,"1":5}}`, with the next offset to read of each partition. So a
query can move from that source to this one, and back. Each topic also has its id, under a key that no topic can have,
with a value in which the kafka source finds no partition: `"topic@id=<hex>":{}`. A topic that was deleted and created
again has the same name and other records, and its old offsets mean nothing (KIP-516). The id shows this.

Spark compares offsets as text to find out whether there is something to read. So keys are sorted: otherwise an idle
query would never rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from spark_connectors.wire import TopicPartition

ID_MARK: Final = "@id="
ID_SIZE_BYTES: Final = 16


class MalformedOffsets(ValueError):
    """JSON that has no valid offsets."""


class TopicRecreated(Exception):
    """The topic has another id than the topic that was read before."""


@dataclass(frozen=True)
class Offsets:
    """The next offset to read of each partition, and the ids of their topics as far as they are known."""

    positions: Mapping[TopicPartition, int]
    ids: Mapping[str, bytes] = field(default_factory=dict)

    def to_json(self) -> dict[str, dict[str, int]]:
        """Offsets as an object for json.dumps, with sorted keys."""
        found: dict[str, dict[str, int]] = {}
        for place in sorted(self.positions):
            found.setdefault(place.topic, {})[str(place.partition)] = self.positions[place]
        for topic in self.ids.keys() & found.keys():
            found[f"{topic}{ID_MARK}{self.ids[topic].hex()}"] = {}
        return dict(sorted(found.items()))

    @classmethod
    def from_json(cls, data: Any) -> Offsets:
        """Parse the output of `to_json` or of the kafka source. Raises MalformedOffsets."""
        if not isinstance(data, Mapping):
            raise MalformedOffsets(f"not offsets of topics: {data!r}")
        positions: dict[TopicPartition, int] = {}
        ids: dict[str, bytes] = {}
        for key, value in data.items():
            topic, mark, hexadecimal = key.partition(ID_MARK)
            if mark:
                ids[topic] = _id_of(hexadecimal)
            else:
                positions.update({TopicPartition(key, number): offset for number, offset in numbered(key, value)})
        return cls(positions, ids)

    def check_ids(self, current: Mapping[str, bytes]) -> None:
        """Raises TopicRecreated if a known topic has another id in `current`. Missing topics are ignored."""
        for topic, known in self.ids.items():
            if current.get(topic, known) != known:
                raise TopicRecreated(
                    f"topic {topic} was deleted and created again: its id was {known.hex()} and is "
                    f"{current[topic].hex()}. Offsets of the old one mean nothing in the new one: begin with a new "
                    f"checkpoint"
                )


def numbered(topic: str, value: Any) -> list[tuple[int, int]]:
    """Parse `{"0":23}` to pairs of partition and number. Raises MalformedOffsets."""
    try:
        found = [(int(partition), number) for partition, number in value.items()]
    except (AttributeError, ValueError, TypeError):
        found = [(-1, 0)]
    if any(partition < 0 or type(number) is not int for partition, number in found):
        raise MalformedOffsets(f'expected e.g. {{"topic":{{"0":23,"1":-1}}}}, got {value!r} for {topic}')
    return found


def _id_of(hexadecimal: str) -> bytes:
    try:
        found = bytes.fromhex(hexadecimal)
    except ValueError:
        found = b""
    if len(found) != ID_SIZE_BYTES:
        raise MalformedOffsets(f"no topic id: {hexadecimal}")
    return found
