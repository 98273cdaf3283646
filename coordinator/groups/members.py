"""The members of a classic group: who they are, by which ids they are found, and which protocol they elect."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic

from coordinator.errors import FencedInstance, UnknownMember
from coordinator.shards.table import NEVER_MS, AskerT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coordinator.groups.api import Claim, Join, MemberProtocol

CLIENT_ID_IN_ID_MAX = 255  # of a client's name so much is kept: ids that nobody comes back with are kept too
INSTANCE_ID_IN_ID_MAX = 2**15 - 38  # so that the id is no longer than a string of the protocol may be


def name_in_id(join: Join) -> str:
    """What the id that a newcomer is given begins with."""
    if join.instance_id is None:
        return join.client_id[:CLIENT_ID_IN_ID_MAX]
    return join.instance_id[:INSTANCE_ID_IN_ID_MAX]


class Expected(dict[str, int]):
    """Ids that were given out and have not come back yet, with when they are forgotten. The oldest make room."""

    def __init__(self, count_max: int) -> None:
        super().__init__()
        self._count_max = count_max

    def add(self, member_id: str, deadline_ms: int) -> None:
        if len(self) >= self._count_max:
            del self[next(iter(self))]
        self[member_id] = deadline_ms


@dataclass(slots=True, eq=False)
class Member(Generic[AskerT]):
    """`joining` and `syncing` are whom to answer; a member that waits needs no heartbeat to be alive."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]
    assignment: bytes = b""
    joining: AskerT | None = None
    syncing: AskerT | None = None
    is_new: bool = True  # since it came no join phase has ended
    deadline_ms: int = NEVER_MS  # it is dead when nothing is heard of it until then

    @property
    def waits(self) -> bool:
        """For an answer of the group."""
        return self.joining is not None or self.syncing is not None

    def metadata_for(self, protocol_name: str) -> bytes:
        """Of a protocol it offers."""
        return next((one.metadata for one in self.protocols if one.name == protocol_name), b"")

    def vote(self, candidates: set[str]) -> str:
        """The one it likes best."""
        return next(one.name for one in self.protocols if one.name in candidates)

    def take(self, join: Join) -> None:
        """What it says of itself now."""
        self.client_id, self.client_host = join.client_id, join.client_host
        self.session_timeout_ms, self.rebalance_timeout_ms = join.session_timeout_ms, join.rebalance_timeout_ms
        self.protocols = join.protocols


class Members(Generic[AskerT]):
    """In the order in which they came."""

    def __init__(self) -> None:
        self._by_id: dict[str, Member[AskerT]] = {}
        self._id_of_instance: dict[str, str] = {}
        self._offers: Counter[str] = Counter()  # of how many members

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member[AskerT]]:
        return iter(self._by_id.values())

    def ids(self) -> list[str]:
        return list(self._by_id)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of all."""
        return max((one.rebalance_timeout_ms for one in self), default=0)

    def get(self, member_id: str) -> Member[AskerT] | None:
        return self._by_id.get(member_id)

    def id_of_instance(self, instance_id: str | None) -> str | None:
        """Of the static member that goes by it now."""
        return None if instance_id is None else self._id_of_instance.get(instance_id)

    def find(self, claim: Claim) -> Member[AskerT]:
        """Errors: UnknownMember; FencedInstance when the instance goes by another id since (KIP-345)."""
        if claim.instance_id is not None:
            known = self._id_of_instance.get(claim.instance_id)
            if known is None:
                raise UnknownMember(claim.member_id)
            if known != claim.member_id:
                raise FencedInstance(claim.instance_id)
        member = self._by_id.get(claim.member_id)
        if member is None:
            raise UnknownMember(claim.member_id)
        return member

    def add(self, member: Member[AskerT]) -> None:
        self._by_id[member.member_id] = member
        if member.instance_id is not None:
            self._id_of_instance[member.instance_id] = member.member_id
        self._offers.update(_names(member))

    def remove(self, member: Member[AskerT]) -> None:
        del self._by_id[member.member_id]
        if member.instance_id is not None:
            del self._id_of_instance[member.instance_id]
        self._offers.subtract(_names(member))

    def update(self, member: Member[AskerT], join: Join) -> None:
        """What one of them says of itself now."""
        self._offers.subtract(_names(member))
        member.take(join)
        self._offers.update(_names(member))

    def all_offer_one_of(self, protocols: tuple[MemberProtocol, ...]) -> bool:
        count = len(self._by_id)
        return any(self._offers[one.name] == count for one in protocols)

    def elect_protocol(self) -> str:
        """Each votes for the first of its own that all offer; of equal ones the one that was voted for first wins."""
        candidates = {name for name, count in self._offers.items() if count == len(self._by_id)}
        votes = Counter(member.vote(candidates) for member in self)
        return votes.most_common(1)[0][0]


def _names(member: Member[AskerT]) -> set[str]:
    """Each counts once, however often it is named."""
    return {one.name for one in member.protocols}
