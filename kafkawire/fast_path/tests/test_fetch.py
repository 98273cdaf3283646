"""A broker with fast paths answers any Fetch like one without."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import trio

from kafkawire.fast_path.fetch import FastFetch
from kafkawire.fast_path.fetch_shape import FRAME_SIZE_MAX_BYTES, LENGTH_MAX
from kafkawire.fast_path.tests.fetch_traffic import FetchTraffic
from kafkawire.fast_path.tests.produce_traffic import ProduceTraffic, mixed_frames
from kafkawire.fast_path.tests.two_brokers import FRAMES, SEED, Side, serve_both, two_brokers
from kafkawire.messages.fetch import API_KEY as FETCH
from kafkawire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkawire.requests.headers import decode_request_header, decode_response, encode_request
from kafkawire.tests.answers import answer
from kafkawire.tests.harness import join
from testkit.recorded_requests import recorded

BY_NAME, BY_ID = 12, 18


def ids_of(side: Side) -> dict[str, bytes]:
    return {name: topic.topic_id for name, topic in side.broker.cluster.image.topics.items()}


def request(topic_id: bytes, *offsets: int, **fields: Any) -> FetchRequest:
    """A request for topic "plain", with an offset for each of its first partitions."""
    partitions = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index, offset in enumerate(offsets)
    ]
    topics = [FetchTopic(topic="plain", topic_id=topic_id, partitions=partitions)] if partitions else []
    return FetchRequest(**{"max_wait_ms": 500, "min_bytes": 1, "topics": topics, **fields})


@pytest.mark.parametrize("seed", range(SEED, SEED + 3))
async def test_fetches_with_fast_paths_return_the_same_as_without(seed: int) -> None:
    draw = Random(seed)
    async with two_brokers() as sides:
        plain, fast = sides
        ids = ids_of(plain)
        assert ids == ids_of(fast)
        fetches, produces = FetchTraffic(draw, ids), ProduceTraffic(draw, ids)
        number = valid = 0
        while number < FRAMES:
            frames, count = mixed_frames(draw, fetches.frame, produces)
            valid += count
            number += len(frames)
            await serve_both(sides, frames)
            for outcome in plain.outcomes[-len(frames) :]:
                fetches.learn(outcome)
            if draw.random() < 0.01:
                for side in sides:
                    await side.broker.cluster.real.delete_topic("small")
                    await side.broker.create("small", 2)
                fetches.ids = ids_of(plain)
        assert plain.state() == fast.state()
        assert fast.fast_paths[FETCH].taken >= valid / 2, (fast.fast_paths[FETCH].taken, valid)


@pytest.mark.parametrize("version", [11, BY_NAME, BY_ID])
@pytest.mark.parametrize("epoch", [-1, 0])
async def test_an_append_or_a_topic_deletion_wakes_a_waiting_fast_path_fetch(version: int, epoch: int) -> None:
    async with two_brokers() as sides:
        for side in sides:
            topic_id = ids_of(side)["plain"]
            frame = encode_request(request(topic_id, 0, 0, session_epoch=epoch, max_wait_ms=60_000), version, 1, "me")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(side.serve, [frame])
                await trio.sleep(1)
                await side.broker.append("plain", b"v", partition=1)
            frame = encode_request(request(topic_id, 0, 1, session_epoch=epoch, max_wait_ms=60_000), version, 2, "me")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(side.serve, [frame])
                await trio.sleep(1)
                await side.broker.cluster.real.delete_topic("plain")
        assert sides[0].outcomes == sides[1].outcomes
        assert sides[1].fast_paths[FETCH].taken == 2
        assert sides[0].state()["sessions"] == sides[1].state()["sessions"]


async def test_a_client_that_goes_away_leaves_nothing_behind() -> None:
    async with two_brokers() as sides:
        for side in sides:
            topic_id = ids_of(side)["plain"]
            await side.serve([encode_request(request(topic_id, 0, session_epoch=0, max_wait_ms=0), BY_ID, 1, "me")])
            session_id = session_of(side.outcomes[-1])
            for session in ((0, -1), (session_id, 1)):
                asked = request(topic_id, 0, session_id=session[0], session_epoch=session[1])
                with trio.CancelScope() as scope:
                    scope.deadline = trio.current_time() + 0.1
                    await side.serve([encode_request(asked, BY_ID, 2, "me")])
                assert scope.cancelled_caught
            asked = request(topic_id, session_id=session_id, session_epoch=2, max_wait_ms=0)
            await side.serve([encode_request(asked, BY_ID, 3, "me")])
            assert len(side.broker.log("plain").changes) == 1, "the session's"  # type: ignore[attr-defined]
        assert sides[0].outcomes == sides[1].outcomes
        assert sides[0].state() == sides[1].state()


def session_of(outcome: object) -> int:
    assert isinstance(outcome, bytes)
    response: Any = decode_response(outcome, FETCH, BY_ID)[1]
    assert response.error_code == 0
    return int(response.session_id)


async def test_a_topic_that_goes_between_arrival_and_turn_is_gone() -> None:
    async with two_brokers() as sides:
        replies = []
        for side in sides:
            await side.broker.append("plain", b"v")
            started = side.start(encode_request(request(ids_of(side)["plain"], 0), BY_ID, 1, "me"))
            await side.broker.cluster.real.delete_topic("plain")
            reply = await answer(started)
            assert reply is not None
            replies.append(join(reply))
        assert replies[0] == replies[1]


async def test_large_records_stay_in_their_file_and_small_ones_leave_with_the_reply() -> None:
    async with two_brokers() as sides:
        for size, segments in ((1_000, 1), (100_000, 3)):
            replies = []
            for side in sides:
                base_offset = await side.broker.append("plain", bytes(size))
                started = side.start(encode_request(request(ids_of(side)["plain"], base_offset), BY_ID, 1, "me"))
                reply = await answer(started)
                assert reply is not None
                replies.append(join(reply))
            assert isinstance(started, FastFetch)
            assert reply is not None
            assert len(reply) == segments
            assert replies[0] == replies[1]


async def test_a_session_of_more_partitions_than_a_turn_is_told_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("fetching.work", "handlers.fetch", "fast_path.fetch"):
        monkeypatch.setattr(f"kafkawire.{module}.TARGETS_PER_TURN", 2)
    async with two_brokers() as sides:
        for side in sides:
            topic_id = ids_of(side)["plain"]
            await side.serve(
                [encode_request(request(topic_id, 0, 0, 0, session_epoch=0, max_wait_ms=0), BY_ID, 1, "me")]
            )
        assert sides[0].outcomes == sides[1].outcomes
        assert sides[0].state() == sides[1].state()


async def test_a_bug_behind_the_fast_path_is_answered_as_one_behind_the_general_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError("a bug")

    async with two_brokers() as sides:
        for version in (11, BY_NAME, BY_ID):
            for place in ("engine.partitions.partition.Partition.read", "kafkawire.fetching.reader.FetchReader.load"):
                for side in sides:
                    with monkeypatch.context() as patch:
                        patch.setattr(place, fail)
                        await side.serve([encode_request(request(ids_of(side)["plain"], 0), version, 7, "me")])
        assert sides[0].outcomes == sides[1].outcomes
        assert sides[0].state() == sides[1].state()
        assert sides[1].fast_paths[FETCH].taken == 6


async def test_requests_as_clients_send_them_take_the_fast_path() -> None:
    async with two_brokers() as (_, side):
        taken: dict[str, list[bool]] = {}
        for one in recorded(FETCH):
            fast_path = side.fast_paths[FETCH]
            started = fast_path.take(bytearray(one.frame), side.broker.connection, trio.current_time())
            taken.setdefault(one.client, []).append(started is not None)
        assert len(taken) == 7
        for client, found in taken.items():
            assert sum(found) >= 0.95 * len(found), client


async def test_another_request_of_a_session_that_waits_is_refused() -> None:
    async with two_brokers() as sides:
        for side in sides:
            topic_id = ids_of(side)["plain"]
            await side.serve([encode_request(request(topic_id, 0, session_epoch=0, max_wait_ms=0), BY_ID, 1, "me")])
            asked = request(topic_id, session_id=session_of(side.outcomes[-1]), session_epoch=1)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(side.serve, [encode_request(asked, BY_ID, 2, "me")])
                await trio.sleep(0.1)
                asked.session_epoch = 2
                await side.serve([encode_request(asked, BY_ID, 3, "me")])
        assert sides[0].outcomes == sides[1].outcomes
        assert sides[0].state() == sides[1].state()
        assert sides[1].fast_paths[FETCH].taken == 3


async def test_a_small_request_in_a_large_frame_is_left_to_the_general_path() -> None:
    async with two_brokers() as sides:
        frame = encode_request(request(ids_of(sides[0])["plain"], 0, max_wait_ms=0), BY_ID, 1, "me")
        await serve_both(sides, [frame + bytes(FRAME_SIZE_MAX_BYTES - len(frame))])
        assert sides[1].fast_paths[FETCH].taken == 1
        await serve_both(sides, [frame + bytes(FRAME_SIZE_MAX_BYTES)])
        assert sides[1].fast_paths[FETCH].taken == 1


async def test_many_partitions_are_left_to_the_general_path() -> None:
    async with two_brokers() as sides:
        frame = encode_request(
            request(ids_of(sides[0])["plain"], *range(LENGTH_MAX + 1), max_wait_ms=0), BY_ID, 1, "me"
        )
        await serve_both(sides, [frame])
        assert not sides[1].fast_paths[FETCH].taken


async def test_recorded_fetches_give_the_same_results_with_and_without_the_fast_path() -> None:
    async with two_brokers() as sides:
        for one in recorded(FETCH):
            header, body_start = decode_request_header(one.frame)
            asked = FetchRequest.decode(one.frame, header.api_version, body_start)
            asked.max_wait_ms = 0
            frame = encode_request(asked, header.api_version, header.correlation_id, header.client_id)
            await serve_both(sides, [frame])
        assert sides[0].state() == sides[1].state()
