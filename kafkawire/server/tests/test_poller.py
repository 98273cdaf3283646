"""Watchers and the system's pollers on socket pairs: the one of Linux, and the one of other systems."""

from __future__ import annotations

import os
import select
import selectors
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
import trio

from kafkawire.server.poller import (
    FOUND_MAX,
    READ,
    WRITE,
    EpollPoller,
    Poller,
    SelectorPoller,
    SystemPoller,
    system_poller,
)

needs_epoll = pytest.mark.skipif(not hasattr(select, "epoll"), reason="needs epoll, which is Linux's")


@dataclass(eq=False)
class Seen:
    """A watcher."""

    visits: list[int] = field(default_factory=list)

    def visit(self, events: int) -> None:
        self.visits.append(events)

    def answer(self) -> None: ...
    def end_turn(self) -> None: ...


@dataclass
class World:
    poller: Poller
    ours: socket.socket
    theirs: socket.socket
    noted: list[None] = field(default_factory=list)


def by_selectors() -> SystemPoller:
    return SelectorPoller(selectors.DefaultSelector())


@pytest.fixture(params=[pytest.param(EpollPoller, marks=needs_epoll), by_selectors])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    open_system: Callable[[], SystemPoller] = request.param
    noted: list[None] = []
    ours, theirs = socket.socketpair()
    poller = Poller(lambda: noted.append(None), open_system)
    with ours, theirs:
        yield World(poller, ours, theirs, noted)
    poller.close()


def test_poller_returns_unread_input_again(world: World) -> None:
    watcher = Seen()
    world.poller.watch(world.ours.fileno(), watcher, READ)
    assert world.poller.take() == []
    world.theirs.send(b"x")
    assert [world.poller.take() for _ in range(2)] == [[(watcher, READ)]] * 2
    world.ours.recv(1)
    assert world.poller.take() == []


def test_poller_returns_only_the_watched_events(world: World) -> None:
    watcher, descriptor = Seen(), world.ours.fileno()
    world.theirs.send(b"x")
    world.poller.watch(descriptor, watcher, WRITE)
    assert world.poller.take() == [(watcher, WRITE)]
    world.poller.watch(descriptor, watcher, READ | WRITE)
    assert world.poller.take() == [(watcher, READ | WRITE)]
    world.poller.unwatch(descriptor)
    assert world.poller.take() == []
    world.poller.watch(descriptor, watcher, READ)
    assert world.poller.take() == [(watcher, READ)]


def test_of_many_all_come_to_be_told_of(world: World) -> None:
    watchers = {os.dup(world.ours.fileno()): Seen() for _ in range(FOUND_MAX + 20)}
    for descriptor, watcher in watchers.items():
        world.poller.watch(descriptor, watcher, READ)
    world.theirs.send(b"x")
    watched_ids = {id(watcher) for _ in range(2) for watcher, _ in world.poller.take()}
    assert watched_ids == {id(watcher) for watcher in watchers.values()}
    for descriptor in watchers:
        world.poller.unwatch(descriptor)
        os.close(descriptor)


def test_hang_up_is_returned_as_a_read_event(world: World) -> None:
    watcher = Seen()
    world.poller.watch(world.ours.fileno(), watcher, READ)
    world.theirs.close()
    [(_, events)] = world.poller.take()
    assert events & READ


def test_noted_events_are_returned_first_and_once(world: World) -> None:
    watcher, noted, gone = Seen(), Seen(), Seen()
    world.poller.watch(world.ours.fileno(), watcher, READ)
    world.theirs.send(b"x")
    for one, events in ((gone, READ), (noted, READ), (noted, WRITE)):
        world.poller.note(one, events)
    world.poller.forget(gone)
    assert len(world.noted) == 3
    assert world.poller.take() == [(noted, READ | WRITE), (watcher, READ)]
    assert world.poller.take() == [(watcher, READ)]


async def test_poller_descriptor_is_readable_when_an_event_is_pending() -> None:
    ours, theirs = socket.socketpair()
    poller, opened = Poller(lambda: None), []

    async def wait() -> None:
        system = await poller.opened()
        await trio.lowlevel.wait_readable(system.fileno())
        opened.append(poller.take())

    with ours, theirs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            watcher = Seen()
            poller.watch(ours.fileno(), watcher, READ)
            await trio.testing.wait_all_tasks_blocked()
            assert opened == []
            theirs.send(b"x")
        assert opened == [[(watcher, READ)]]
        poller.close()


def test_system_poller_opens_on_this_platform() -> None:
    system_poller().close()
