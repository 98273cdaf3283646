"""`kafkawire produce` and `kafkawire consume` as a user types them, on a running broker and beside a real client."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

from compat_tests.clients.confluent.clients import create_topic, flush, producer
from compat_tests.features.cli.commands import TIMEOUT_S, document, going_on, refusal
from compat_tests.harness.kafkawire_broker import KAFKAWIRE
from compat_tests.harness.target import target_broker

if TYPE_CHECKING:
    from pathlib import Path

    from compat_tests.harness.broker import Broker

FIRST_MS = 1_700_000_000_000


def fed(broker: Broker, typed: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(KAFKAWIRE), *arguments, "-b", broker.bootstrap]
    return subprocess.run(command, input=typed, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def produced(broker: Broker, typed: str, topic: str, *arguments: str) -> Any:
    done = fed(broker, typed, "produce", topic, *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def consumed(broker: Broker, topic: str, *arguments: str) -> list[str]:
    done = fed(broker, "", "consume", topic, "-e", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_many_lines_in_every_codec(broker: Broker, topic: str) -> None:
    document(broker, "topics", "create", topic, "--partitions", "3")
    lines = [f"key-{number % 100}:value {number}" for number in range(50_000)]
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    for number, codec in enumerate(codecs):
        told = produced(broker, "\n".join(lines[10_000 * number : 10_000 * (number + 1)]), topic, "-K:", "-z", codec)
        assert told["records"] == 10_000
    found = consumed(broker, topic, "--from-beginning", "-K:")
    assert sorted(found) == sorted(lines)
    assert [one for one in found if one.startswith("key-7:")] == lines[7::100]


def test_keys_go_where_other_clients_send_them(broker: Broker, topic: str) -> None:
    create_topic(broker, topic, 5)
    client = producer(broker, partitioner="murmur2_random")
    keys = [f"key {number}" for number in range(50)]
    for key in keys:
        client.produce(topic, b"theirs", key.encode())
    flush(client)
    produced(broker, "".join(f"{key}:ours\n" for key in keys), topic, "-K:")
    partitions: dict[str, set[int]] = {}
    for line in consumed(broker, topic, "--from-beginning", "-o", "json"):
        found = json.loads(line)
        partitions.setdefault(found["key"], set()).add(found["partition"])
    assert len(partitions) == len(keys)
    assert {len(one) for one in partitions.values()} == {1}


def test_json_from_topic_to_topic(broker: Broker, topic: str) -> None:
    create_topic(broker, topic, 1)
    client = producer(broker, compression_type="zstd")
    client.produce(topic, b"\xff\x00", b"k", timestamp=FIRST_MS, headers=[("a", b"b"), ("a", None)])
    client.produce(topic, None, "ü", timestamp=FIRST_MS + 1000)
    flush(client)
    lines = consumed(broker, topic, "--from-beginning", "-o", "json")
    assert json.loads(lines[0])["value"] == {"base64": "/wA="}
    produced(broker, "\n".join(lines), f"{topic}-copy", "--input", "json", "--create")
    names = ("key", "value", "headers", "timestamp", "offset")
    copied = [json.loads(line) for line in consumed(broker, f"{topic}-copy", "--from-beginning", "-o", "json")]
    assert [[one[name] for name in names] for one in copied] == [
        [json.loads(line)[name] for name in names] for line in lines
    ]
    assert consumed(broker, topic, "--offset", f"@{FIRST_MS + 1}", "-K=") == ["ü="]
    assert consumed(broker, topic, "--offset", "@2023-11-14T22:13:20", "--value-format", "hex") == ["ff00", ""]
    assert consumed(broker, topic, "--offset", "@2023-11-15") == []


def test_following_a_topic_until_interrupted(broker: Broker, topic: str) -> None:
    create_topic(broker, topic, 2)
    with going_on(broker, "consume", topic, "--from-beginning") as reader:
        assert reader.stdout is not None
        for number in range(3):
            produced(broker, f"{number}\n", topic)
            assert reader.stdout.readline() == f"{number}\n"
        reader.send_signal(signal.SIGINT)
        rest, told = reader.communicate(timeout=TIMEOUT_S)
    assert (rest, told, reader.returncode) == ("", "", 130)


def test_an_interrupted_producer_prints_the_number_of_acknowledged_records(broker: Broker, topic: str) -> None:
    create_topic(broker, topic, 1)
    with going_on(broker, "produce", topic, "-o", "json") as writer:
        assert writer.stdin is not None
        writer.stdin.write("typed\n")
        writer.stdin.flush()
        wait_for_records(broker, topic, 1)
        writer.send_signal(signal.SIGINT)
        writer.wait(TIMEOUT_S)
        assert writer.stdout is not None
        assert json.loads(writer.stdout.read())["records"] == 1
    assert writer.returncode == 130


def test_a_reader_that_has_enough(broker: Broker, topic: str) -> None:
    create_topic(broker, topic, 1)
    produced(broker, "".join(f"{number}\n" for number in range(200_000)), topic)
    with going_on(broker, "consume", topic, "--from-beginning") as reader:
        assert reader.stdout is not None
        assert reader.stderr is not None
        assert reader.stdout.readline() == "0\n"
        reader.stdout.close()
        assert reader.wait(TIMEOUT_S) == 0
        assert reader.stderr.read() == ""


def test_a_producer_rides_out_restarts(tmp_path: Path, topic: str) -> None:
    """A producer gets lines to send while no broker runs; each of them is stored exactly once."""
    with target_broker(tmp_path) as own:
        create_topic(own, topic, 1)
        with going_on(own, "produce", topic, "-o", "json", "--timeout", str(TIMEOUT_S)) as writer:
            assert writer.stdin is not None
            for count in range(0, 3000, 1000):
                writer.stdin.write("".join(f"{number}\n" for number in range(count, count + 500)))
                writer.stdin.flush()
                wait_for_records(own, topic, count + 500)
                own.kill()
                writer.stdin.write("".join(f"{number}\n" for number in range(count + 500, count + 1000)))
                writer.stdin.flush()
                own.start()
            told, _ = writer.communicate(timeout=TIMEOUT_S)
        assert (writer.returncode, json.loads(told)["records"]) == (0, 3000)
        assert consumed(own, topic, "--from-beginning") == [str(number) for number in range(3000)]


def wait_for_records(broker: Broker, topic: str, count: int) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while len(consumed(broker, topic, "--from-beginning")) < count:
        assert time.monotonic() < deadline


def test_refusals_are_one_line(broker: Broker, topic: str) -> None:
    gone = f"topic {topic}: there is no such topic or partition"
    assert refusal(broker, "consume", topic) == gone
    assert refusal(broker, "produce", topic) == gone
    document(broker, "topics", "create", topic, "--set", "max.message.bytes=1000")
    done = fed(broker, "short\n" + "x" * 2000, "produce", topic, "-p", "0")
    assert done.returncode == 1
    assert done.stderr.startswith(f"Error: {topic}-0: ")
    assert len(done.stderr.splitlines()) == 1
