"""The members of a classic group, the ids by which they are found, and the protocol that they elect."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic

from coordinator.errors import FencedInstance, UnknownMember
from coordinator.shards.table import NEVER_MS, FutureT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coordinator.groups.api import Claim, Join, MemberProtocol

CLIENT_ID_IN_ID_MAX = 255  # characters of a client's name: ids with which no client comes back are kept too
INSTANCE_ID_IN_ID_MAX = 2**15 - 38  # so that the id is no longer than a string of the protocol may be


def name_in_id(join: Join) -> str:
    """The first part of the id that a new member is given."""
    if join.instance_id is None:
        return join.client_id[:CLIENT_ID_IN_ID_MAX]
    return join.instance_id[:INSTANCE_ID_IN_ID_MAX]


class ExpectedMembers(dict[str, int]):
    """Ids that were given out and with which no member has joined yet, with their deadlines. The oldest make room."""

    def __init__(self, count_max: int) -> None:
        super().__init__()
        self._count_max = count_max

    def add(self, member_id: str, deadline_ms: int) -> None:
        if len(self) >= self._count_max:
            del self[next(iter(self))]
        self[member_id] = deadline_ms


@dataclass(slots=True, eq=False)
class Member(Generic[FutureT]):
    """A member. `joining` and `syncing` are the requests to answer; a member that waits needs no heartbeat to be
    alive."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]
    assignment: bytes = b""
    joining: FutureT | None = None
    syncing: FutureT | None = None
    is_new: bool = True  # since it came no join phase has ended
    deadline_ms: int = NEVER_MS  # it is dead when nothing is heard of it until then

    @property
    def waits(self) -> bool:
        """Whether a request of it waits for an answer of the group."""
        return self.joining is not None or self.syncing is not None

    def metadata_for(self, protocol_name: str) -> bytes:
        """The metadata of a protocol that it offers."""
        return next((one.metadata for one in self.protocols if one.name == protocol_name), b"")

    def vote(self, candidates: set[str]) -> str:
        """The first of its protocols that is a candidate."""
        return next(one.name for one in self.protocols if one.name in candidates)

    def take(self, join: Join) -> None:
        """Take over the data of its new JoinGroup."""
        self.client_id, self.client_host = join.client_id, join.client_host
        self.session_timeout_ms, self.rebalance_timeout_ms = join.session_timeout_ms, join.rebalance_timeout_ms
        self.protocols = join.protocols


class Members(Generic[FutureT]):
    """The members, in the order in which they came."""

    def __init__(self) -> None:
        self._by_id: dict[str, Member[FutureT]] = {}
        self._id_of_instance: dict[str, str] = {}
        self._offers: Counter[str] = Counter()  # of how many members

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member[FutureT]]:
        return iter(self._by_id.values())

    def ids(self) -> list[str]:
        return list(self._by_id)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of all members' timeouts."""
        return max((one.rebalance_timeout_ms for one in self), default=0)

    def get(self, member_id: str) -> Member[FutureT] | None:
        return self._by_id.get(member_id)

    def id_of_instance(self, instance_id: str | None) -> str | None:
        """The id of the static member that has this instance id now."""
        return None if instance_id is None else self._id_of_instance.get(instance_id)

    def find(self, claim: Claim) -> Member[FutureT]:
        """The member of a claim. Errors: UnknownMember; FencedInstance when the instance has another id since
        (KIP-345)."""
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

    def add(self, member: Member[FutureT]) -> None:
        self._by_id[member.member_id] = member
        if member.instance_id is not None:
            self._id_of_instance[member.instance_id] = member.member_id
        self._offers.update(_names(member))

    def remove(self, member: Member[FutureT]) -> None:
        del self._by_id[member.member_id]
        if member.instance_id is not None:
            del self._id_of_instance[member.instance_id]
        self._offers.subtract(_names(member))

    def update(self, member: Member[FutureT], join: Join) -> None:
        """Take over the data of a member's new JoinGroup."""
        self._offers.subtract(_names(member))
        member.take(join)
        self._offers.update(_names(member))

    def all_offer_one_of(self, protocols: tuple[MemberProtocol, ...]) -> bool:
        count = len(self._by_id)
        return any(self._offers[one.name] == count for one in protocols)

    def elect_protocol(self) -> str:
        """Each member votes for the first of its protocols that all offer; of equal ones the protocol that was voted
        for first wins."""
        candidates = {name for name, count in self._offers.items() if count == len(self._by_id)}
        votes = Counter(member.vote(candidates) for member in self)
        return votes.most_common(1)[0][0]


def _names(member: Member[FutureT]) -> set[str]:
    """The names of its protocols, each once."""
    return {one.name for one in member.protocols}
