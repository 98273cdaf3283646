"""Our broker, but that producers begin in an epoch with not many left: what happens once in years happens soon.

As a module it is the broker's command line.
"""

from __future__ import annotations

from compat_tests.harness.kafkawire_broker import Kafkawire, program_of
from coordinator.transactions import transitions
from kafkawire.cli import main

FIRST_EPOCH = 32_760


class LateEpochs(Kafkawire):
    """See `Kafkawire`."""

    program = program_of("compat_tests.chaos.late_epochs")


if __name__ == "__main__":
    vars(transitions).update(FIRST_EPOCH=FIRST_EPOCH)
    main()
