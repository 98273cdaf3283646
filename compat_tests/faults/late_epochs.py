"""A kafkawire broker whose producers begin a few epochs before the last one, so that producer epochs run out soon.

The module can be run as the broker's command line.
"""

from __future__ import annotations

from compat_tests.harness.kafkawire_broker import Kafkawire, program_of
from coordinator.transactions import transitions
from kafkawire.cli import main
from testkit.overrides import override

FIRST_EPOCH = 32_760


class LateEpochs(Kafkawire):
    """See `Kafkawire`."""

    program = program_of("compat_tests.faults.late_epochs")


if __name__ == "__main__":
    override(transitions, FIRST_EPOCH=FIRST_EPOCH)
    main()
