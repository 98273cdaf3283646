"""`kafkawire serve` from outside: it starts or refuses in one clear line, and leaves when told to."""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import time
import urllib.request
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition

from compat_tests.clients.confluent.clients import commit, create_topic, flush, new_consumer, producer, read, wait_until
from compat_tests.harness.broker import READY_TIMEOUT_S, BrokerFailedError, free_port
from compat_tests.harness.kafkawire_broker import KAFKAWIRE, Kafkawire
from compat_tests.harness.tools import running
from compat_tests.harness.wire import WireConnection, fetch_frame
from testkit.broker_files import COMBINED_FILE

if TYPE_CHECKING:
    from pathlib import Path

LEAVES_WITHIN_S = 9  # of a shutdown's grace of ten


def http(broker: Kafkawire, path: str, host: str = "127.0.0.1") -> str:
    with urllib.request.urlopen(f"http://{host}:{broker.http_port}{path}", timeout=10) as reply:
        text: str = reply.read().decode()
    return text


def refusal(broker: Kafkawire) -> str:
    """The output of a broker that did not start; it must have no traceback."""
    with pytest.raises(BrokerFailedError) as failure:
        broker.start()
    assert "exited with" in str(failure.value)
    said = broker.log_tail()
    assert "Traceback" not in said
    assert "kafkawire ready" not in said
    return said


def test_ready_line_names_the_addresses(tmp_path: Path) -> None:
    with Kafkawire(tmp_path) as broker:
        (line,) = [line for line in broker.log_path.read_text().splitlines() if line.startswith("kafkawire ready")]
        assert str(broker.port) in line
        assert str(broker.http_port) in line


@pytest.mark.enforces("http.listeners")
def test_health_and_metrics(tmp_path: Path) -> None:
    with Kafkawire(tmp_path) as broker:
        http(broker, "/health/live")
        create_topic(broker, "counted")
        assert "# TYPE" in http(broker, "/metrics")


def test_http_on_every_interface(tmp_path: Path) -> None:
    broker = Kafkawire(tmp_path)
    broker.overrides["http.listeners"] = f"http://:{broker.http_port}"
    with broker:
        for host in ("127.0.0.1", "127.0.0.2"):
            http(broker, "/health/live", host)


def test_the_lag_of_a_group_is_at_metrics(tmp_path: Path) -> None:
    with Kafkawire(tmp_path) as broker:
        create_topic(broker, "read")
        client = producer(broker)
        for _ in range(3):
            client.produce("read", b"value")
        flush(client)
        consumer = new_consumer(broker, group_id="reader")
        commit(consumer, TopicPartition("read", 0, 1))
        consumer.close()
        lines = http(broker, "/metrics").splitlines()
    assert 'kafka_consumergroup_lag{consumergroup="reader",partition="0",topic="read"} 2' in lines
    assert 'redpanda_kafka_consumer_group_lag_sum{redpanda_group="reader"} 2' in lines
    assert 'kafka_server_group_coordinator_metrics_classic_group_count{state="Empty"} 1.0' in lines


def test_nothing_is_written_outside_the_log_dir(tmp_path: Path) -> None:
    with Kafkawire(tmp_path) as broker:
        create_topic(broker, "inside")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broker.log", "data"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num.partitions", "many"),
        ("num.partitions", "0"),
        ("remote.log.storage.system.enable", "true"),
        ("listeners", "SASL_SSL://127.0.0.1:9"),
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
    ],
)
def test_a_bad_value_is_refused_by_name(tmp_path: Path, key: str, value: str) -> None:
    assert key in refusal(Kafkawire(tmp_path, {key: value}))


def test_an_unknown_key_is_a_warning_by_name(tmp_path: Path) -> None:
    with Kafkawire(tmp_path, {"no.such.key": "1"}) as broker:
        assert "no.such.key" in broker.log_path.read_text()


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    broker = Kafkawire(tmp_path)
    with socket.socket() as occupied:
        occupied.bind(("127.0.0.1", broker.port))
        occupied.listen()
        assert str(broker.port) in refusal(broker)


def test_a_second_broker_on_the_same_data_is_refused(tmp_path: Path) -> None:
    with Kafkawire(tmp_path / "first") as first:
        second = Kafkawire(tmp_path / "second", {"log.dirs": str(first.data_dir)})
        assert str(first.data_dir) in refusal(second)
        create_topic(first, "unharmed")


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "file" in refusal(Kafkawire(tmp_path / "broker", {"log.dirs": str(tmp_path / "file" / "data")}))


def test_a_properties_file_counts_and_an_override_counts_more(tmp_path: Path) -> None:
    port, other_port = free_port(), free_port()
    properties = tmp_path / "server.properties"
    properties.write_text(
        f"listeners=PLAINTEXT://127.0.0.1:{port}\nlog.dirs={tmp_path / 'data'}\nhttp.listeners=http://127.0.0.1:{port}\n"
    )
    command = [str(KAFKAWIRE), "serve", str(properties), "--set", f"http.listeners=http://127.0.0.1:{other_port}"]
    log = tmp_path / "log"
    with running(log, command) as process:
        wait_until(lambda: "kafkawire ready" in log.read_text(), "the broker is not ready", READY_TIMEOUT_S)
    (line,) = [line for line in log.read_text().splitlines() if line.startswith("kafkawire ready")]
    assert str(port) in line
    assert str(other_port) in line
    assert process.returncode == 0


def test_the_file_apache_kafka_comes_with_starts_a_broker(tmp_path: Path) -> None:
    """The environment has precedence over the file, and the command line over both; a controller listener is not
    opened."""
    port, controller_port = free_port(), free_port()
    file = tmp_path / "server.properties"
    file.write_text(COMBINED_FILE)
    listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}"
    environment = {"KAFKA_LISTENERS": listeners, "KAFKA_ADVERTISED_LISTENERS": listeners}
    environment |= {"KAFKA_LOG_DIRS": "/nowhere", "KAFKA_HEAP_OPTS": "-Xmx1g"}
    command = [str(KAFKAWIRE), "serve", str(file), "--set", f"log.dirs={tmp_path / 'data'}", "--set", "http.listeners="]
    log = tmp_path / "log"
    with running(log, command, **environment) as process:
        wait_until(lambda: "kafkawire ready" in log.read_text(), "the broker is not ready", READY_TIMEOUT_S)
        with socket.create_connection(("127.0.0.1", port), timeout=10):
            pass
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", controller_port), timeout=10)
    said = log.read_text()
    assert process.returncode == 0, said
    assert f"listener CONTROLLER://127.0.0.1:{controller_port} is not opened" in said
    assert f"{file}, line 2: process.roles has no effect here" in said
    assert "HEAP" not in said


def test_a_bad_line_of_a_properties_file_is_refused_with_its_number(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("node.id=1\n\nnum.partitions=many\n")
    done = subprocess.run([str(KAFKAWIRE), "serve", str(file)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (
        1,
        f"Error: {file}, line 3: num.partitions=many: must be a whole number\n",
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_broker_stops_in_order_while_a_client_polls(tmp_path: Path, number: signal.Signals) -> None:
    """The broker stops in order while a client waits in a long poll."""
    with Kafkawire(tmp_path) as broker:
        create_topic(broker, "polled")
        client = producer(broker)
        client.produce("polled", b"value")
        flush(client)
        with WireConnection(broker.port) as connection:
            connection.send_frame(fetch_frame("polled", 1, max_wait_ms=60_000))
            wait_until(lambda: 'kafkawire_requests_total{request="fetch"} 1.0' in http(broker, "/metrics"), "no poll")
            started = time.monotonic()
            assert broker.stop(number) == 0
            assert time.monotonic() - started < 30
        broker.start()
        assert [message.value() for message in read(broker, "polled", 0, 1)] == [b"value"]


def seconds_to_leave(broker: Kafkawire) -> float:
    started = time.monotonic()
    assert broker.stop(signal.SIGTERM) == 0
    return time.monotonic() - started


def test_the_broker_stops_soon_with_many_idle_connections(tmp_path: Path) -> None:
    with Kafkawire(tmp_path) as broker, ExitStack() as stack:
        for _ in range(250):
            stack.enter_context(WireConnection(broker.port))
        assert seconds_to_leave(broker) < LEAVES_WITHIN_S


def test_the_broker_stops_soon_with_clients_at_work(tmp_path: Path) -> None:
    """A stop does not wait for clients: long polls, a web client that stays connected, and stock clients."""
    with Kafkawire(tmp_path) as broker, ExitStack() as stack:
        create_topic(broker, "polled")
        client = producer(broker)
        consumer = new_consumer(broker, group_id="leavers", auto_offset_reset="earliest")
        stack.callback(consumer.close)
        consumer.subscribe(["polled"])
        web = stack.enter_context(socket.create_connection(("127.0.0.1", broker.http_port)))
        web.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert web.recv(4) == b"HTTP"
        for _ in range(100):
            connection = stack.enter_context(WireConnection(broker.port))
            connection.send_frame(fetch_frame("polled", 1_000, max_wait_ms=60_000))
        for _ in range(30):
            client.produce("polled", b"value")
            consumer.poll(0.1)
        assert seconds_to_leave(broker) < LEAVES_WITHIN_S


def test_a_client_that_shut_down_its_sending_side_gets_all_replies_in_order(tmp_path: Path) -> None:
    with Kafkawire(tmp_path) as broker:
        create_topic(broker, "polled")
        with socket.create_connection(("127.0.0.1", broker.port), 15) as connection:
            frames = [fetch_frame("polled", 0, max_wait_ms=60_000, correlation_id=number) for number in range(40)]
            connection.sendall(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
            connection.shutdown(socket.SHUT_WR)
            received = b"".join(iter(lambda: connection.recv(65536), b""))
        numbers = []
        while received:
            size_bytes, number = struct.unpack_from(">ii", received)
            numbers.append(number)
            received = received[4 + size_bytes :]
        assert numbers == list(range(40))
