"""Driver of kaskade's own screens: it looks at a topic and prints the content of the screens, as one JSON document.

Runs in the console's environment, not in that of the tests; its screens are drawn to no terminal.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kaskade.admin import DescribeTopicScreen, KaskadeAdmin, ListTopics
from kaskade.consumer import KaskadeConsumer, ListRecords
from kaskade.deserializers import Deserialization
from kaskade.logs import configure_logging
from textual.widgets import DataTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import App
    from textual.pilot import Pilot

SIZE = (160, 60)
TABLES = 5  # of a topic: partitions, its configs, groups, their members and offsets
TIMEOUT_S = 30.0
LOOK_AGAIN_S = 0.05

Rows = list[list[str]]


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await pilot.pause(LOOK_AGAIN_S)


def rows(table: DataTable[Any]) -> Rows:
    return [[str(cell) for cell in table.get_row_at(index)] for index in range(table.row_count)]


def complaints(app: App[None]) -> list[str]:
    """The notifications to its user that are more than information."""
    return [notice.message for notice in app._notifications if notice.severity != "information"]


def filled(app: App[None]) -> list[DataTable[str]]:
    """The tables of a screen that are not empty."""
    return [table for table in app.screen.query(DataTable) if table.row_count]


async def administer(bootstrap: str, topic: str) -> dict[str, Any]:
    """The list of topics, and every tab of the details of one."""
    app = KaskadeAdmin({"bootstrap.servers": bootstrap}, refresh_interval=0)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        topics = app.query_one(ListTopics)
        await until(pilot, lambda: topics.last_updated_at is not None)
        table = app.query_one("#topics-table", DataTable)
        listed = rows(table)
        table.move_cursor(row=table.get_row_index(topic))
        await until(pilot, lambda: topics.current_topic is not None and topics.current_topic.name == topic)
        await pilot.press("d")
        await until(pilot, lambda: isinstance(app.screen, DescribeTopicScreen) and len(filled(app)) == TABLES)
        details = {str(one.id): rows(one) for one in filled(app)}
        return {"topics": listed, **details, "complaints": complaints(app)}


async def consume(bootstrap: str, topic: str, count: int) -> dict[str, Any]:
    """The records of a topic on the screen, from the first on."""
    settings = {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"}
    text = Deserialization.STRING
    app = KaskadeConsumer(topic, settings, {}, {}, {}, text, text)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        found = app.query_one(ListRecords)
        await until(pilot, lambda: len(found.records) == count)
        return {"records": rows(app.query_one("#records-table", DataTable)), "complaints": complaints(app)}


def main() -> None:
    bootstrap, topic, count, log = sys.argv[1:]
    configure_logging(Path(log))
    shown = asyncio.run(administer(bootstrap, topic))
    read = asyncio.run(consume(bootstrap, topic, int(count)))
    complaints_of_both = shown.pop("complaints") + read.pop("complaints")
    print(json.dumps({**shown, **read, "complaints": complaints_of_both}))


if __name__ == "__main__":
    main()
