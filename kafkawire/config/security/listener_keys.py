"""Keys with the prefix of a listener, and the value that counts for a listener.

`listener.name.<listener>.<key>` precedes `<key>`; the listener's name is in small letters. A prefix that names no
listener, or a key that a listener does not have, refuses the start: a typing error must not open a listener.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from kafkawire.config.keys import Key
from kafkawire.config.security.ssl_keys import SSL_KEYS
from kafkawire.config.values import ConfigError

LISTENER_PREFIX: Final = "listener.name."
LISTENER_KEYS: Final[Mapping[str, Key]] = SSL_KEYS


def is_prefixed(name: str) -> bool:
    return name.startswith(LISTENER_PREFIX)


def prefix_of(listener: str) -> str:
    return f"{LISTENER_PREFIX}{listener.lower()}."


def listener_of(name: str, listeners: Collection[str]) -> str | None:
    """The listener that the prefix of a key names; None: none of these."""
    found = [one for one in listeners if name.startswith(prefix_of(one))]
    return max(found, key=len, default=None)  # a name may have dots, and another one may begin like it


def key_of(name: str, listeners: Collection[str]) -> Key:
    """The key behind the prefix of one of these listeners. Raises ConfigError."""
    listener = listener_of(name, listeners)
    if listener is None:
        raise ConfigError(f"{name}: there is no such listener", name)
    rest = name.removeprefix(prefix_of(listener))
    key = LISTENER_KEYS.get(rest)
    if key is None:
        raise ConfigError(f"{name}: {rest} is not a key of a listener", name)
    return key


class ListenerValues:
    """Values of the keys of one listener. `given` are the properties of the broker, which are valid. Without a
    `listener` they are a client's."""

    def __init__(self, given: Mapping[str, str], listener: str | None) -> None:
        self._given = given
        self._prefix = "" if listener is None else prefix_of(listener)

    def name_of(self, key: str) -> str:
        """The name under which the value was given, for messages."""
        return self._prefix + key if self._prefix + key in self._given else key

    def __getitem__(self, key: str) -> Any:
        """The value; None for a key without a default that is not set."""
        found = LISTENER_KEYS[key]
        value = self._given.get(self.name_of(key), found.default)
        return None if value is None else found.reader(value)
