"""Late requests of a `FaultyProxy` and the broker's answers to them: counts, and a line for each request."""

from __future__ import annotations

import struct
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from compat_tests.harness.kio_codec import decode_request, decode_response

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from compat_tests.faults.faulty_proxy import LateRequest

# Of a record batch: producer id, epoch, base sequence, count.
_PRODUCER = struct.Struct(">qhii")
_PRODUCER_AT = 43


def answers(late_requests: Iterable[LateRequest]) -> str:
    """The error codes, by API and version, in one line."""
    found = Counter((*decode_request(each.frame)[:2], code(each)) for each in late_requests)
    return ", ".join(f"{api} v{version} {error} x {count}" for (api, version, error), count in sorted(found.items()))


def code(late_request: LateRequest) -> str:
    """The first error in a reply, or 0."""
    if late_request.reply is None:
        return "closed"
    api, version, _ = decode_request(late_request.frame)
    reply = decode_response(api, version, late_request.reply)
    return str(next((each for each in _codes(reply) if each), 0))


def _codes(reply: Any) -> Iterator[int]:
    if isinstance(reply, dict):
        for name, value in reply.items():
            if name.endswith("error_code"):
                yield value
            yield from _codes(value)
    elif isinstance(reply, list):
        for each in reply:
            yield from _codes(each)


def line_of(late_request: LateRequest) -> str:
    """A line about a late request. Its time is by the clock of the logs, to be compared with a dump of the log."""
    api, version, fields = decode_request(late_request.frame)
    at = time.strftime("%H:%M:%S", time.gmtime(late_request.at_s)) + f"{late_request.at_s % 1:.3f}"[1:]
    how = f"{late_request.fault.value} by {late_request.delay_s:.3f} s"
    return f"{at} {api} v{version} {how}, answered {code(late_request)}: {_without_records(fields)}"


def _without_records(fields: Any) -> Any:
    """The fields of a request, where each batch is replaced by its producer, sequence and record count."""
    if isinstance(fields, dict):
        return {name: _without_records(value) for name, value in fields.items()}
    if isinstance(fields, list):
        return [_without_records(each) for each in fields]
    if isinstance(fields, bytes) and len(fields) >= _PRODUCER_AT + _PRODUCER.size:
        producer_id, epoch, sequence, count = _PRODUCER.unpack_from(fields, _PRODUCER_AT)
        return f"{count} records of {producer_id} in epoch {epoch} from sequence {sequence}"
    return fields
