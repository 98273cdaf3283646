"""`kill -9` of the broker at every step of a copy and before every reply of the store: nothing lost, nothing left."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compat_tests.features.object_stores.faulty_store import FaultyStore
from compat_tests.features.tiering import store_campaign
from compat_tests.features.tiering.kill_plan import KillPlan
from compat_tests.features.tiering.tiers import QUICK, in_bucket
from compat_tests.harness.kafkawire_broker import Kafkawire
from compat_tests.harness.s3_server import s3_server

if TYPE_CHECKING:
    from pathlib import Path

KILLS = int(os.environ.get("KAFKAWIRE_CHAOS_STORE_KILLS", "12"))


def test_kills_at_requests_to_the_store_lose_and_leave_nothing(tmp_path: Path) -> None:
    plan = KillPlan(store_campaign.SEED)
    with s3_server(tmp_path) as server, FaultyStore(server.endpoint, plan) as proxy:
        bucket = server.make_bucket("bucket")
        broker = Kafkawire(tmp_path / "broker", QUICK | in_bucket(bucket, proxy.endpoint))
        store_campaign.run(broker, proxy, server.endpoint, bucket, plan, KILLS)
