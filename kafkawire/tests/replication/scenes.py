"""Scenes that the model tries: the beginning and the limits of each. Each scene shows a loss that the rules prevent."""

from __future__ import annotations

from typing import NamedTuple

from kafkawire.tests.replication.world import Limits

QUIET = Limits(elections=1, appends=1, crashes=0, lives=0, late=0, unknowns=0)


class Scene(NamedTuple):
    """`initial_steps`: the steps before the search begins; `states`: the most states that it tries."""

    limits: Limits
    initial_steps: tuple[str, ...] = ()
    states: int = 20_000


BEHIND_THE_EPOCH = (
    *("2 writes", "2 syncs", "1 fetches", "the response to 1 is lost"),  # acknowledged, and 1 does not know it
    *("the preferred leads", "1 learns", "3 learns"),
)
UNEQUAL = (
    *("1 writes", "1 syncs", "3 fetches", "2 fetches", "3 fetches", "1 writes", "1 syncs", "3 fetches"),
    "the response to 2 is lost",  # the first record is acknowledged; the second one has only 3
)
LED_TWICE = (
    *("2 writes", "2 syncs", "3 fetches", "the response to 3 is lost"),
    *("2 is fenced", "1 learns", "3 learns", "3 fetches", "2 learns", "2 registers", "2 fetches"),
)
LED_IN_TURN = ("1 writes", "1 syncs", "2 fetches", "1 is fenced", "1 learns", "1 registers", "2 learns")

QUICK = {
    "two brokers": Scene(Limits(late=1)),
    "two in sync are asked for": Scene(Limits(min_isr=2, late=1)),
    "followers sync later": Scene(QUIET._replace(is_stepwise=True, crashes=1)),
    "not synced, and back after a crash": Scene(QUIET._replace(synced=False, elections=2, crashes=1, lives=1)),
    "not synced": Scene(Limits(synced=False, elections=1, appends=1, late=1, unknowns=0)),
    "not synced, and no checkpoint": Scene(Limits(synced=False, keeps_high_watermark=False, min_isr=2, late=0)),
    "elections that may lose something": Scene(Limits(synced=False, is_unclean=True, late=0, unknowns=0)),
    "fewer in sync become enough": Scene(QUIET._replace(min_isr=2, lowers=True, unknowns=1)),
    "one in sync, fewer become enough": Scene(QUIET._replace(isr=(1,), min_isr=2, lowers=True, unknowns=1)),
    "one in sync": Scene(QUIET._replace(isr=(1,), unknowns=1)),
    "late responses": Scene(QUIET._replace(late=1, lives=1, elections=2, appends=2)),
    "leaders in turn": Scene(QUIET._replace(lives=1, elections=2, appends=2), LED_IN_TURN),
    "a leader that is behind": Scene(
        QUIET._replace(brokers=3, leader=2, isr=(1, 2), elections=2), BEHIND_THE_EPOCH, states=4_000
    ),
    "logs that part": Scene(QUIET._replace(brokers=3, appends=3), UNEQUAL, states=4_000),
    "a leader once more": Scene(
        QUIET._replace(brokers=3, leader=2, elections=2, appends=2, lives=1, remembers=True), LED_TWICE, states=8_000
    ),
}
ALL = 2**62
DEEP = {
    # Two elections, each broker crashes, an outcome is unknown; any number of messages is lost.
    "two brokers, three appends": Scene(Limits(appends=3, late=0), states=ALL),
    "two brokers, a late message": Scene(QUIET._replace(elections=2, appends=2, lives=1, late=1), states=ALL),
    "two brokers, not synced": Scene(Limits(synced=False, late=0, unknowns=0), states=ALL),
    "two brokers, fewer become enough": Scene(
        Limits(min_isr=2, lowers=True, appends=1, elections=1, late=0), states=ALL
    ),
    "three brokers": Scene(QUIET._replace(brokers=3, min_isr=2, crashes=1), states=ALL),
}
