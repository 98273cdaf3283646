"""Finds where two transcripts differ, field by field; knows nothing of reasons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

ABSENT = "(absent)"
STOPPED = "the scenario"  # the step at which a scenario could not go on


@dataclass(frozen=True)
class Difference:
    """A field of a reply that differs. `path` names the step of the scenario, then the field."""

    case: str
    version: int
    path: str
    kafka: str
    ours: str

    def __str__(self) -> str:
        return f"{self.case} v{self.version} {self.path}: Kafka {self.kafka}, ours {self.ours}"


def compare_transcripts(
    case: str, version: int, kafka: list[tuple[str, Any]], ours: list[tuple[str, Any]]
) -> list[Difference]:
    found: list[Difference] = []
    for step in range(max(len(kafka), len(ours))):
        kafka_name, kafka_reply = kafka[step] if step < len(kafka) else (ABSENT, ABSENT)
        ours_name, ours_reply = ours[step] if step < len(ours) else (ABSENT, ABSENT)
        name = kafka_name if kafka_name != ABSENT else ours_name
        if STOPPED in (kafka_name, ours_name):  # also if both stopped: the other steps are not compared
            found.append(Difference(case, version, STOPPED, shown(kafka_reply), shown(ours_reply)))
            continue
        found += [
            Difference(case, version, path, shown(left), shown(right))
            for path, left, right in walk(name, kafka_reply, ours_reply)
        ]
    return found


def walk(path: str, left: Any, right: Any) -> list[tuple[str, Any, Any]]:
    """(path, left, right) for each leaf that differs; a structure against anything else is one difference."""
    if isinstance(left, dict) and isinstance(right, dict) and not _closes(left) and not _closes(right):
        names = [*left, *(name for name in right if name not in left)]
        return [
            row for name in names for row in walk(f"{path}.{name}", left.get(name, ABSENT), right.get(name, ABSENT))
        ]
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        return [row for at, pair in enumerate(zip(left, right, strict=True)) for row in walk(f"{path}[{at}]", *pair)]
    return [] if left == right and type(left) is type(right) else [(path, left, right)]


def _closes(reply: dict[Any, Any]) -> bool:
    return set(reply) == {"connection"}


def shown(value: Any) -> str:
    """A leaf as people read it; a structure in short."""
    if isinstance(value, dict):
        if _closes(value):
            return str(value["connection"])
        return "(a reply)" if "correlation_id" in value else "(present)"
    if isinstance(value, list):
        return f"({len(value)} rows)"
    return str(value)
