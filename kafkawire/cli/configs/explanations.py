"""`kafkawire configs explain`: documentation of a key of topics, of brokers or of both."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Any, Final

from kafkawire.config.broker_config import KNOWN_KEYS, OLDER_NAMES
from kafkawire.config.keys import Key, TopicKey, Update
from kafkawire.config.topic_config import SYNONYMS, TOPIC_KEYS
from kafkawire.config.unbuilt import HARMLESS_KEYS

WIDTH: Final = 100
BUILT: Final = "obeyed"
NOT_BUILT: Final = "not built yet: only the default is accepted"
CHANGED: Final = {
    Update.READ_ONLY: "at the start",
    Update.PER_BROKER: f"at the start: {Update.PER_BROKER.value}",
    Update.CLUSTER_WIDE: f"while brokers run, {Update.CLUSTER_WIDE.value}",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """Documentation of one key. `synonyms` are in the order of their precedence."""

    key: str
    of: str
    documentation: str
    type: str | None
    default: str | None
    synonyms: tuple[str, ...]
    change: str
    status: str

    def document(self) -> dict[str, Any]:
        """The explanation as a JSON object."""
        return asdict(self)

    def text(self) -> str:
        """The explanation as text for people."""
        rows = {
            "type": self.type,
            "default": self.default,
            "synonyms": ", ".join(self.synonyms) or None,
            "change": self.change,
            "status": self.status,
        }
        lines = [f"{self.key} ({self.of})", *textwrap.wrap(self.documentation, WIDTH), ""]
        lines += [f"{name:<10}{value if value else '-'}" for name, value in rows.items()]
        return "\n".join(lines)


def explanations(name: str) -> list[Explanation]:
    """Explanations of a key, for topics and for brokers. Empty if the key is unknown."""
    return list(_explanations(OLDER_NAMES.get(name, name)))


def similar(name: str) -> list[str]:
    """The known key with the most similar name, if any."""
    return get_close_matches(name, {**TOPIC_KEYS, **KNOWN_KEYS, **HARMLESS_KEYS}, n=1)


def _explanations(name: str) -> Iterator[Explanation]:
    if name in TOPIC_KEYS:
        yield _of_topic(TOPIC_KEYS[name])
    if name in KNOWN_KEYS:
        yield _of_broker(KNOWN_KEYS[name])
    if name in HARMLESS_KEYS:
        documentation = f"Accepted and without effect: {HARMLESS_KEYS[name]}."
        yield Explanation(name, "broker", documentation, None, None, (), Update.READ_ONLY.value, "without effect")


def _of_topic(key: TopicKey) -> Explanation:
    defaults = [source.value(source.key.default) for source in key.sources if source.key.default is not None]
    return Explanation(
        key.name,
        "topic",
        key.documentation,
        key.reader.type.name.lower(),
        defaults[0] if defaults else key.default,
        tuple(source.key.name for source in key.sources),
        "while brokers run",
        BUILT if key.field is not None else NOT_BUILT,
    )


def _of_broker(key: Key) -> Explanation:
    return Explanation(
        key.name,
        "broker",
        key.documentation,
        key.reader.type.name.lower(),
        key.default,
        tuple(one for one in SYNONYMS.get(key.name, ()) if one != key.name),
        CHANGED[key.update],
        BUILT if key.is_built else NOT_BUILT,
    )
