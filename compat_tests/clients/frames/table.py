"""Prints the recorded requests by client: the count for each API, version, and number of topics x partitions."""

from __future__ import annotations

from collections import Counter
from typing import Any

from kafkawire.handlers import API_TABLE
from kafkawire.requests.headers import decode_request_header
from testkit.recorded_requests import recorded

_ROWS = {"produce": "topic_data", "fetch": "topics", "offset_commit": "topics"}
_PARTITIONS = {"produce": "partition_data"}


def shape(name: str, request: Any) -> str:
    """Topics x partitions of all topics together; empty for APIs whose requests do not vary so."""
    if name not in _ROWS:
        return ""
    topics = getattr(request, _ROWS[name])
    partitions = sum(len(getattr(topic, _PARTITIONS.get(name, "partitions"))) for topic in topics)
    forgotten = len(request.forgotten_topics_data) if name == "fetch" else 0
    return f"{len(topics)}x{partitions}" + " forgets" * bool(forgotten)


def table() -> str:
    """A Markdown table with a row for each client, API and version."""
    counts: dict[tuple[str, str, int], Counter[str]] = {}
    apis = {api.key: api for api in API_TABLE}
    for row in recorded():
        api = apis[row.api_key]
        header, start = decode_request_header(bytearray(row.frame))
        if header.api_version > api.max_version:
            counts.setdefault((row.client, api.name, row.version), Counter())["not served"] += 1
            continue
        request = api.request.decode(row.frame, row.version, start)
        counts.setdefault((row.client, api.name, row.version), Counter())[shape(api.name, request)] += 1
    lines = ["| client | API | version | requests | topics x partitions: requests |", "|---|---|---|---|---|"]
    for (client, name, version), shapes in sorted(counts.items()):
        each = ", ".join(f"{one}: {count}" for one, count in sorted(shapes.items(), key=lambda x: -x[1]) if one)
        lines.append(f"| {client} | {name} | {version} | {shapes.total()} | {each} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
