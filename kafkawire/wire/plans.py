"""The plans of all messages: a compiled decoder and encoder for each class and version, made at first use.

A compilation takes about a millisecond; `warm` does it ahead for hot APIs, so that the first request does not wait.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafkawire.wire.plan_decode import Decoder, compile_decoder
from kafkawire.wire.plan_encode import Encoder, compile_encoder

_decoders: dict[tuple[type[Any], int], Decoder] = {}
_encoders: dict[tuple[type[Any], int], Encoder] = {}


def decoder(message: type[Any], version: int) -> Decoder:
    """The decoder of a message class in one version. Raises ValueError for a version that does not exist."""
    plan = _decoders.get((message, version))
    if plan is None:
        plan = _decoders[message, version] = compile_decoder(message, version, _is_flexible(message, version))
    return plan


def encoder(message: type[Any], version: int) -> Encoder:
    """The encoder of a message class in one version. Raises ValueError for a version that does not exist."""
    plan = _encoders.get((message, version))
    if plan is None:
        plan = _encoders[message, version] = compile_encoder(message, version, _is_flexible(message, version))
    return plan


def element_encoder(message: type[Any], struct: type[Any], version: int) -> Encoder:
    """The encoder of one struct of a message, for `EncodedElements`. Raises ValueError like `encoder`."""
    plan = _encoders.get((struct, version))
    if plan is None:
        plan = _encoders[struct, version] = compile_encoder(struct, version, _is_flexible(message, version))
    return plan


def warm(pairs: Iterable[tuple[type[Any], type[Any], int]]) -> None:
    """Compile the request decoder and the response encoder of each (request, response, version)."""
    for request, response, version in pairs:
        decoder(request, version)
        encoder(response, version)


def _is_flexible(message: type[Any], version: int) -> bool:
    first, last = message.VERSIONS
    if not first <= version <= last:
        raise ValueError(f"{message.__name__} has no version {version}")
    return bool(version >= message.FLEXIBLE_FROM)
