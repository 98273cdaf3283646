"""Keys and values between bytes and text, JSON, hex and base64. Pure.

JSON documents have the form of the broker's HTTP listener: a string if the bytes are UTF-8, else `{"base64": "…"}`;
null stands for no value.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from typing import Any, Final


def load_json(text: bytes) -> Any:
    """Parse JSON. Raises ValueError, also for the NaN and Infinity that Python accepts.

    Numbers beyond double precision are refused too: they would be written as Infinity.
    """
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is too large")
    return number


def dump_json(document: Any, separators: tuple[str, str] = (", ", ": ")) -> bytes:
    """Serialize JSON in UTF-8; a lone surrogate, which UTF-8 lacks, makes it escape. Raises ValueError."""
    try:
        try:
            return json.dumps(document, ensure_ascii=False, separators=separators).encode()
        except UnicodeEncodeError:
            return json.dumps(document, separators=separators).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _checked_json(text: bytes) -> bytes:
    load_json(text)
    return text


def _from_hex(text: bytes) -> bytes:
    return bytes.fromhex(text.decode())


def _from_base64(text: bytes) -> bytes:
    return base64.b64decode(text, validate=True)


_DECODERS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "text": lambda text: text,
    "json": _checked_json,
    "hex": _from_hex,
    "base64": _from_base64,
}
FORMATS: Final = tuple(_DECODERS)


def decode_text(text: bytes, name: str) -> bytes:
    """Decode the text of a line. Raises ValueError."""
    try:
        return _DECODERS[name](text)
    except ValueError:
        raise ValueError(f"not {name}: {_shown(text)}") from None


def decode_document(document: Any, name: str) -> bytes | None:
    """Decode a value of a JSON object. Raises ValueError."""
    if document is None:
        return None
    if name == "json":
        return dump_json(document, separators=(",", ":"))
    if isinstance(document, dict) and list(document) == ["base64"] and isinstance(document["base64"], str):
        return decode_text(document["base64"].encode(), "base64")
    if not isinstance(document, str):
        raise ValueError(f"not {name}: {_shown(dump_json(document))}")
    return decode_text(document.encode(), name)


def encode_text(data: bytes, name: str) -> bytes:
    """Encode bytes for a line. Raises ValueError if the format is JSON and the bytes are not."""
    if name == "json":
        return decode_document(_parsed(data), name) or b"null"
    if name == "hex":
        return data.hex().encode()
    return base64.b64encode(data) if name == "base64" else data


def encode_document(data: bytes | None, name: str) -> Any:
    """Encode bytes for a JSON object. Raises ValueError if the format is JSON and the bytes are not."""
    if data is None:
        return None
    if name == "json":
        return _parsed(data)
    if name != "text":
        return encode_text(data, name).decode()
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _parsed(data: bytes) -> Any:
    try:
        return load_json(data)
    except ValueError:
        raise ValueError(f"not json: {_shown(data)}") from None


def _shown(text: bytes) -> str:
    return text[:40].decode(errors="replace") + ("…" if len(text) > 40 else "")
