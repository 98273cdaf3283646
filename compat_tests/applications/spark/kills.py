"""A campaign of kills against a stream: `python -m compat_tests.applications.spark.kills --kills N` prints a summary.

The seed repeats its choices, not the timing of the machine. The files in `--directory` stay.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path

from compat_tests.applications.spark import kill_campaign
from compat_tests.harness.apache_kafka import ApacheKafka
from compat_tests.harness.kafkawire_broker import Kafkawire

BROKERS = {"kafkawire": Kafkawire, "kafka": ApacheKafka}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m compat_tests.applications.spark.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 1 << 31))
    parser.add_argument("--target", choices=BROKERS, default="kafkawire")
    parser.add_argument("--directory", type=Path, help="a new one; by default below that for temporary files")
    asked = parser.parse_args()
    directory = asked.directory or Path(tempfile.mkdtemp(prefix="kills-"))
    directory.mkdir(parents=True, exist_ok=True)
    print(f"seed {asked.seed}, in {directory}", flush=True)
    broker = BROKERS[asked.target](directory / "broker", kill_campaign.BROKER_CONFIG)
    kill_campaign.run(broker, directory, asked.seed, asked.kills)


if __name__ == "__main__":
    main()
