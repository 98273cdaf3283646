"""Records requests of clients, for unit tests of the request decoders.

    .venv/bin/python -m compat_tests.clients.frames.record            # all clients: some minutes
    .venv/bin/python -m compat_tests.clients.frames.record kcat       # one of them
    .venv/bin/python -m compat_tests.clients.frames.table             # print the recorded requests

Each client gets a broker of its own behind a `Proxy`, topics of one, three and twelve partitions, and its sessions of
`compat_tests.clients.frames.sessions` to play. Its requests take the place of those in
`testkit/frames`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from compat_tests.clients.confluent.clients import create_topic
from compat_tests.clients.frames.proxy import Proxy
from compat_tests.clients.frames.sessions import SESSIONS, TOPICS
from compat_tests.harness.kafkawire_broker import Kafkawire
from compat_tests.harness.versions import client
from testkit.recorded_requests import keep


def record(name: str) -> None:
    """Record the sessions of one client; the file's name has its version."""
    with tempfile.TemporaryDirectory() as directory, Proxy() as proxy:
        overrides = {"advertised.listeners": f"PLAINTEXT://{proxy.bootstrap}", "group.initial.rebalance.delay.ms": "0"}
        with Kafkawire(Path(directory), overrides) as broker:
            proxy.serve(broker.port)
            for topic, partitions in TOPICS.items():
                create_topic(broker, topic, partitions)
            proxy.taken()
            SESSIONS[name](proxy.bootstrap)
            frames = proxy.taken()
    path = keep(f"{name}-{client(name).newest}", frames)
    print(f"{path.name}: {len(frames)} requests, {path.stat().st_size} bytes")


if __name__ == "__main__":
    for each in sys.argv[1:] or SESSIONS:
        record(each)
