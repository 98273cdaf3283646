"""Faults of the disks of brokers, each of which has its own disk, in addition to the faults of hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from compat_tests.faults.faults import HostFaults

if TYPE_CHECKING:
    from compat_tests.faults.faults import FaultAction
    from compat_tests.faults.loop_image import LoopImage
    from compat_tests.harness.broker import Broker

IMAGE_SIZE_MIB: Final = 1024  # sparse
NEARLY_FULL: Final = 33  # of so many parts one is left
LEFT_BYTES: Final = 200_000
LEAVES_WITHIN_S: Final = 30.0
LOGS_WITHIN_S: Final = 5.0  # the broker logs that its log dir failed on the full disk
LIVES_ON: Final = "a broker lives on without its last log dir"
OFFLINE: Final = "is offline: [Errno 28]"  # in the broker's log, if its log dir failed on a full disk


def stops_on_full_disk(broker: Broker, log_before: str = "") -> bool:
    """Whether a broker has stopped because its disk was full: its only log dir failed. Raises AssertionError if it
    lives on without a log dir. `log_before`: the content of its log before the disk was full."""
    if broker.leaves_within(LOGS_WITHIN_S):
        return True
    if OFFLINE not in broker.log_path.read_text()[len(log_before) :]:
        return False
    assert broker.leaves_within(LEAVES_WITHIN_S), LIVES_ON
    return True


class DiskFaults(HostFaults):
    """Faults of hosts, and of the disks of brokers, in the order of the brokers."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.disks: list[LoopImage] = []

    def cut_power_of_one(self) -> None:
        self._cut_power([self._random.randrange(len(self._brokers))])

    def cut_power_of_all(self) -> None:
        self._cut_power(list(range(len(self._brokers))))

    def _cut_power(self, numbers: list[int]) -> None:
        for number in numbers:
            self.disks[number].shut_down()
        for number in numbers:
            self._brokers[number].kill()
        for number in numbers:
            self._renew(number)
        self.heal()

    def lose_disk(self) -> None:
        """Let all writes and syncs of a disk fail."""
        number = self._random.randrange(len(self._brokers))
        self.disks[number].shut_down()
        has_left = self._brokers[number].leaves_within(LEAVES_WITHIN_S)
        if not has_left:
            self._brokers[number].kill()
        self._renew(number)
        self.heal()
        assert has_left, LIVES_ON

    def fill_disk(self) -> None:
        self._fill(LEFT_BYTES)

    def fill_disk_nearly(self) -> None:
        self._fill((IMAGE_SIZE_MIB << 20) // NEARLY_FULL)

    def _fill(self, left_bytes: int) -> None:
        number = self._random.randrange(len(self._brokers))
        broker = self._brokers[number]
        log_before = broker.log_path.read_text()
        self.disks[number].fill(left_bytes)
        self._while_it_lasts()
        self.disks[number].empty()
        stops_on_full_disk(broker, log_before)
        self.heal()

    def _renew(self, number: int) -> None:
        self.disks[number].unmount()
        self.disks[number].mount()

    def kinds(self) -> list[FaultAction]:
        return [
            self.kill_broker,
            self.kill_two_brokers,
            self.kill_all_brokers,
            self.lose_broker,
            self.pause_broker,
            self.restart_broker,
            self.restart_all_in_turn,
            self.cut_off_broker,
            self.cut_off_from_zookeeper,
            self.leave_two_without_zookeeper,
            self.leave_a_bridge,
            self.cut_one_way,
            self.cut_one_way_in,
            self.cut_power_of_one,
            self.cut_power_of_all,
            self.lose_disk,
            self.fill_disk,
            self.fill_disk_nearly,
        ]
