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


def key_of(name: str, listeners: Collection[str]) -> Key:
    """The key behind the prefix of one of these listeners. Raises ConfigError."""
    rest = name.removeprefix(LISTENER_PREFIX)
    for listener in sorted(listeners, key=len, reverse=True):  # a name may have dots
        prefix = f"{listener.lower()}."
        if rest.startswith(prefix):
            key = LISTENER_KEYS.get(rest.removeprefix(prefix))
            if key is None:
                raise ConfigError(f"{name}: {rest.removeprefix(prefix)} is not a key of a listener", name)
            return key
    raise ConfigError(f"{name}: there is no such listener", name)


class ListenerValues:
    """Values of the keys of one listener. `given` are the properties of the broker, which are valid. Without a
    `listener` they are a client's."""

    def __init__(self, given: Mapping[str, str], listener: str | None) -> None:
        self._given = given
        self._prefix = "" if listener is None else f"{LISTENER_PREFIX}{listener.lower()}."

    def name_of(self, key: str) -> str:
        """The name under which the value was given, for messages."""
        return self._prefix + key if self._prefix + key in self._given else key

    def __getitem__(self, key: str) -> Any:
        """The value; None for a key without a default that is not set."""
        found = LISTENER_KEYS[key]
        value = self._given.get(self.name_of(key), found.default)
        return None if value is None else found.reader(value)
