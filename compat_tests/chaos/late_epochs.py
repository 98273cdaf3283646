"""Our broker, but that producers begin in an epoch with not many left: what happens once in years happens soon.

As a module it is the broker's command line.
"""

from __future__ import annotations

import sys

from compat_tests.harness.kafkawire_broker import Kafkawire
from compat_tests.harness.requirements import ROOT
from coordinator.transactions import transitions
from kafkawire.cli import main

FIRST_EPOCH = 32_760


class LateEpochs(Kafkawire):
    """See `Kafkawire`."""

    def command(self) -> list[str]:
        _, *arguments = super().command()
        return ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "compat_tests.chaos.late_epochs", *arguments]


if __name__ == "__main__":
    vars(transitions).update(FIRST_EPOCH=FIRST_EPOCH)
    main()
