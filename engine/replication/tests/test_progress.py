"""Progress of a replica, against a model that keeps all offsets and searches all of them each time."""

from collections.abc import Sequence

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.logs.segments.position import LogPosition
from engine.replication.progress import Progress

OTHERS = (1, 2, 3)
SEGMENT_BYTES = 1000
START = LogPosition(0, 0, 0, -1)


def at(offset: int) -> LogPosition:
    """A position in a log whose records have 100 bytes each, with ten records in a segment."""
    base = offset // 10 * 10
    return LogPosition(offset, base, (offset - base) * 100, offset)


def ends_of(counts: Sequence[int], offset: int) -> list[LogPosition]:
    """Ends of consecutive batches with these numbers of records, from `offset` on."""
    found = []
    for count in counts:
        offset += count
        found.append(at(offset))
    return found


batches = st.lists(st.integers(1, 7), min_size=1, max_size=4)


class ProgressMachine(RuleBasedStateMachine):
    """A leader whose followers lag, leave the ISR and come back, and whose epochs change; or a follower."""

    @initialize(in_sync=st.sets(st.sampled_from(OTHERS)))
    def begin(self, in_sync: set[int]) -> None:
        self.progress = Progress(START, has_others=True)
        self.ends = [0]  # of all batches
        self.durable = 0
        self.high_watermark = 0
        self.claimed: dict[int, int] = {}  # by replica, in this epoch
        self.in_sync = in_sync
        self.is_enough = True
        self.open: list[int] = []  # first offsets
        self.ended: dict[int, int] = {}  # where their markers are
        self.progress.lead(in_sync)

    def expect(self, has_moved: bool) -> None:
        """The high watermark is the last end of a batch that all replicas in sync have; with too few it stays."""
        if self.is_enough:
            sure = min([self.durable, *(self.claimed.get(one, -1) for one in self.in_sync)])
            known = max((end for end in self.ends if end <= sure), default=0)
            assert has_moved == (known > self.high_watermark)
            self.high_watermark = max(self.high_watermark, known)
        else:
            assert not has_moved

    @rule(counts=batches)
    def write(self, counts: list[int]) -> None:
        ends = ends_of(counts, self.ends[-1])
        self.ends += [end.offset for end in ends]
        self.progress.note_written(ends[-1], ends)

    @rule(begins=st.booleans(), ends_which=st.none() | st.integers(0, 3))
    def write_transactions(self, begins: bool, ends_which: int | None) -> None:
        """A batch with which a transaction begins, a marker that ends one, or both."""
        started, ended, offset = list[LogPosition](), list[tuple[int, int]](), self.ends[-1]
        if begins:
            started.append(at(offset) if offset else START)
            self.open.append(offset)
            self.ends.append(offset + 1)
        if ends_which is not None and self.open:
            first_offset, marker = self.open.pop(ends_which % len(self.open)), self.ends[-1]
            ended.append((first_offset, marker))
            self.ended[first_offset] = marker
            self.ends.append(marker + 1)
        self.progress.note_transactions(started, ended)
        self.progress.note_written(at(self.ends[-1]), [at(one) for one in self.ends if one > offset])

    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        later = [end for end in self.ends if end >= self.durable]
        self.durable = data.draw(st.sampled_from(later))
        self.expect(self.progress.note_durable(at(self.durable)))

    @rule(replica=st.sampled_from(OTHERS), data=st.data())
    def fetch(self, replica: int, data: st.DataObject) -> None:
        """A follower has some batches more; or fewer, if it re-replicates from scratch."""
        self.claimed[replica] = data.draw(st.sampled_from(self.ends))
        has_moved = self.progress.note_replica(replica, self.claimed[replica])
        if replica in self.in_sync:
            self.expect(has_moved)
        assert self.progress.end_of(replica) == self.claimed[replica]

    @rule(in_sync=st.sets(st.sampled_from(OTHERS)), is_enough=st.booleans())
    def change_in_sync(self, in_sync: set[int], is_enough: bool) -> None:
        """Change the ISR. The leader admits only a follower that has all below the high watermark."""
        self.in_sync = {
            one for one in in_sync if one in self.in_sync or self.claimed.get(one, -1) >= self.high_watermark
        }
        self.is_enough = is_enough
        self.expect(self.progress.set_in_sync(self.in_sync, is_enough=is_enough))

    @rule(in_sync=st.sets(st.sampled_from(OTHERS)))
    def begin_epoch(self, in_sync: set[int]) -> None:
        self.claimed = {}
        self.in_sync, self.is_enough = in_sync, True
        self.expect(self.progress.lead(in_sync))

    @precondition(lambda self: self.ends[-1] > self.high_watermark)
    @rule(data=st.data())
    def cut(self, data: st.DataObject) -> None:
        """Truncate as a follower does; the rest is durable."""
        self.ends = self.ends[: 1 + self.ends.index(data.draw(st.sampled_from([*self.ends[:-1]])))]
        self.durable = self.ends[-1]
        self.high_watermark = min(self.high_watermark, self.durable)
        self.claimed = {one: min(end, self.durable) for one, end in self.claimed.items()}
        reopened = [first for first, marker in self.ended.items() if marker >= self.durable]
        self.ended = {first: marker for first, marker in self.ended.items() if marker < self.durable}
        self.open = sorted(one for one in [*self.open, *reopened] if one < self.durable)
        self.progress.truncate(at(self.durable), {one: at(one) if one else START for one in self.open})
        for one, end in self.claimed.items():
            self.progress.note_replica(one, end)
        self.high_watermark = max(self.high_watermark, self.progress.high_watermark.offset)

    @rule(leader_high_watermark=st.integers(0, 100))
    def follow(self, leader_high_watermark: int) -> None:
        sure = max(end for end in self.ends if end <= max(0, min(leader_high_watermark, self.durable)))
        assert self.progress.follow(leader_high_watermark) == (sure > self.high_watermark)
        self.high_watermark = max(self.high_watermark, sure)

    @invariant()
    def all_is_as_the_model_has_it(self) -> None:
        progress = self.progress
        assert progress.written == (at(self.ends[-1]) if self.ends[-1] else progress.written)
        assert progress.durable.offset == self.durable
        assert progress.high_watermark.offset == self.high_watermark
        if self.high_watermark:
            assert progress.high_watermark == at(self.high_watermark)
        undecided = [first for first, marker in self.ended.items() if marker >= self.high_watermark]
        assert progress.last_stable.offset == min([self.high_watermark, *self.open, *undecided])
        if progress.last_stable.offset:
            assert progress.last_stable == at(progress.last_stable.offset)
        assert progress.last_stable.offset <= progress.high_watermark.offset <= progress.durable.offset
        assert progress.durable.offset <= progress.written.offset


TestProgress = ProgressMachine.TestCase
TestProgress.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)


def test_a_leader_without_followers_keeps_no_ends_of_its_batches() -> None:
    progress = Progress(START)
    for number in range(1, 100):
        progress.note_written(at(number), [at(number)])
        assert progress.note_durable(at(number))
    assert len(progress._ends) == 0
    assert progress.high_watermark == at(99)


def test_a_start_with_transactions_that_ended_above_the_high_watermark() -> None:
    """The transactions are stable when the others have their markers; no other record is held back."""
    unstable = {1: at(1), 4: at(4)}
    progress = Progress(at(9), at(3), [at(5), at(9)], has_others=True, unstable=unstable, ended=[(1, 4)])
    assert (progress.last_stable, progress.undecided_from) == (at(1), 1)
    progress.lead([1])
    progress.note_replica(1, 6)
    assert (progress.high_watermark, progress.last_stable, progress.undecided_from) == (at(5), at(4), 4)
    progress.note_transactions([], [(4, 7)])
    progress.note_replica(1, 9)
    assert (progress.last_stable, progress.undecided_from) == (at(9), 9)


def test_a_start_with_a_high_watermark_below_the_end() -> None:
    """A broker has just started: records above its high watermark count when the others have them."""
    progress = Progress(at(9), at(3), [at(5), at(9)], has_others=True)
    progress.lead([1])
    assert progress.high_watermark == at(3)
    assert progress.note_replica(1, 6)
    assert progress.high_watermark == at(5)
    assert progress.note_replica(1, 9)
    assert progress.high_watermark == at(9)
