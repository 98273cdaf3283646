"""`kafkawire find`: records by key, time or offset, from a broker's HTTP listener."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import click

from kafkawire.cli.common.cluster_command import shown_time, table

DEFAULT_URL: Final = "http://127.0.0.1:9644"
PAGE_MAX: Final = 1_000  # the maximum of one HTTP reply
TIMEOUT_S: Final = 30.0
VALUE_SHOWN_MAX: Final = 80  # characters of a value in a table
COLUMNS: Final = ("PARTITION", "OFFSET", "TIME", "KEY", "VALUE")


@click.command("find")
@click.argument("topic")
@click.option("--key", help="Key of the records; the topic needs index.keys=true.")
@click.option("--from", "from_time", metavar="TIME", help="Earliest time: ISO 8601, or milliseconds since 1970.")
@click.option("--to", "to_time", metavar="TIME", help="Latest time, exclusive.")
@click.option("--offset", type=click.IntRange(min=0), help="First offset; needs --partition.")
@click.option("--partition", type=click.IntRange(min=0), help="Partition to search.")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="Maximum number of records.")
@click.option(
    "--http", "url", default=DEFAULT_URL, show_default=True, metavar="URL", help="URL of the broker's HTTP listener."
)
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True,
    help="Output format: a table, or a JSON object per line.",
)  # fmt: skip
def command(topic: str, limit: int, url: str, output: str, **given: Any) -> None:
    """Find records of TOPIC by key, by time or by offset."""
    names = {"key": "key", "from_time": "from", "to_time": "to", "offset": "offset", "partition": "partition"}
    parameters = {names[name]: str(value) for name, value in given.items() if value is not None}
    found = _pages(f"{url.rstrip('/')}/v1/topics/{topic}/messages", parameters, limit)
    if output == "json":
        for message in found:
            click.echo(json.dumps(message))
        return
    for line in table(COLUMNS, [_row(message) for message in found]):
        click.echo(line)


def _pages(url: str, parameters: dict[str, str], count_max: int) -> Iterator[dict[str, Any]]:
    """Messages of one page after another, until there are `count_max` or no more."""
    while count_max:
        answer = _get(url, parameters | {"limit": str(min(count_max, PAGE_MAX))})
        if not isinstance(answer, dict) or not {"messages", "next"} <= answer.keys():
            raise click.ClickException(f"{url} answers something else than records")
        yield from answer["messages"]
        count_max -= len(answer["messages"])
        if answer["next"] is None:
            return
        parameters["after"] = answer["next"]


def _get(url: str, query: dict[str, str]) -> Any:
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.parse import quote, urlencode
    from urllib.request import urlopen

    if not url.startswith(("http://", "https://")):
        raise click.UsageError(f"{url} is no http address")
    try:
        with urlopen(f"{quote(url, safe=':/')}?{urlencode(query)}", timeout=TIMEOUT_S) as answer:  # noqa: S310
            return json.load(answer)
    except HTTPError as error:
        with error:
            raise click.ClickException(_reason(error)) from None
    except (OSError, HTTPException) as error:
        raise click.ClickException(f"{url} does not answer: {getattr(error, 'reason', error)}") from None
    except ValueError:
        raise click.ClickException(f"{url} sent a reply that is not JSON") from None


def _reason(error: Any) -> str:
    try:
        return str(json.load(error)["error"])
    except (ValueError, KeyError, TypeError):
        return f"the broker answers {error.code} {error.reason}"


def _row(message: dict[str, Any]) -> tuple[object, ...]:
    key, value = (_shown(message[name]) for name in ("key", "value"))
    return message["partition"], message["offset"], shown_time(message["timestamp"]), key, value


def _shown(data: str | dict[str, str] | None) -> str | None:
    if data is None:
        return None
    text = data if isinstance(data, str) else f"base64:{data['base64']}"
    return text if len(text) <= VALUE_SHOWN_MAX else text[:VALUE_SHOWN_MAX] + "…"
