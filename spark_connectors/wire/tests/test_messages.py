"""Each message has the same bytes as kafkawire's, which are compared with another implementation."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkawire.messages import MODULES
from kafkawire.requests.headers import decode_request_header, encode_request, request_class, response_class
from kafkawire.wire.schema import fields_of
from spark_connectors.wire.api import SIZE_BYTES, Api
from spark_connectors.wire.layout import Reader, Struct, layout_of
from spark_connectors.wire.tests.apis import every_api, values_of

APIS = every_api()
NAMES = [one.name for one in APIS]


def plain(value: Any, version: int) -> Any:
    """A message of either kind as tuples in the order of the wire."""
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, list | tuple):
        return tuple(plain(one, version) for one in value)
    if hasattr(value, "FIELDS"):
        fields, _, _ = fields_of(type(value), version)
        return tuple(plain(getattr(value, one.name), version) for one in fields if one.tag is None)
    if hasattr(value, "__dataclass_fields__"):
        return tuple(plain(getattr(value, name), version) for name in value.__dataclass_fields__)
    return value


def ours_written(layout: Struct, value: Any) -> bytes:
    out = bytearray()
    layout.write(out, value)
    return bytes(out)


@pytest.mark.parametrize("api", APIS, ids=NAMES)
@given(data=st.data())
def test_a_request_is_written_as_kafkawire_reads_and_writes_it(api: Api[Any, Any], data: st.DataObject) -> None:
    request = data.draw(values_of(layout_of(api.request)))
    frame = bytes(api.encode(request, 7, "someone"))[SIZE_BYTES:]
    header, start = decode_request_header(frame)
    theirs = request_class(api.key).decode(frame, api.version, start)
    assert tuple(header) == (api.key, api.version, 7, "someone")
    assert plain(theirs, api.version) == plain(request, api.version)
    assert encode_request(theirs, api.version, 7, "someone") == frame


@pytest.mark.parametrize("api", APIS, ids=NAMES)
@given(data=st.data())
def test_a_response_is_read_as_kafkawire_writes_it(api: Api[Any, Any], data: st.DataObject) -> None:
    layout = layout_of(api.response)
    response = data.draw(values_of(layout))
    theirs = response_class(api.key).decode(ours_written(layout, response), api.version)
    assert plain(theirs, api.version) == plain(response, api.version)
    encoded = b"".join(theirs.encode(api.version))
    source = Reader(encoded)
    assert plain(layout.read(source), api.version) == plain(response, api.version)
    assert source.left_bytes == 0


@pytest.mark.parametrize("api", APIS, ids=NAMES)
def test_names_are_kafkas(api: Api[Any, Any]) -> None:
    words = MODULES[api.key].split("_")
    assert api.name == "".join(word.capitalize() for word in words)
    assert api.request.__name__ == f"{api.name}Request"
    assert api.response.__name__ == f"{api.name}Response"
