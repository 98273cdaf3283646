"""What the driver does when all tasks of a micro-batch, or of a job, are done: relays what they have staged.

What it does when a task has failed, or when relaying has, is nothing at all: a transaction that may have been committed
must not be ended otherwise, and another process may be at it by now.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Final

from spark_connectors.sink.options import SinkOptions
from spark_connectors.sink.relay import Job, Outcome, relay
from spark_connectors.sink.requests import Requests, run
from spark_connectors.sink.staging import Staged, delete_aged, delete_written, frames_of
from spark_connectors.wire import Cluster

NAME_PREFIX: Final = "kafkawire-spark-"
_SWEEP_EVERY: Final = 100  # micro-batches
_log = logging.getLogger(__name__)


def commit(staged: Sequence[Staged], options: SinkOptions, cluster: Cluster) -> Outcome:
    """Of one micro-batch, or job: what each of its tasks has staged. When it returns, all of it is written, once.

    Raises CommitRefused, StagingLost, Fenced, WireError: then the same may be tried again, by whomever.
    """
    query, batch_id = _whose(staged)
    places = tuple(sorted({place for one in staged for place in one.places}))
    job = Job(f"{NAME_PREFIX}{query}", batch_id, places, options.is_missing_accepted)
    requests = Requests(cluster, job.name, options.record_topic, options.transaction_timeout_ms)
    outcome = run(relay(job, (frame for one in staged for frame in frames_of(one))), requests)
    _log.info("%s, micro-batch %s: %s", job.name, batch_id, outcome.value)
    _clean(options, query, batch_id)
    return outcome


def _whose(staged: Sequence[Staged]) -> tuple[str, int | None]:
    (found,) = {(one.by.query, one.by.batch_id) for one in staged}
    return found


def _clean(options: SinkOptions, query: str, batch_id: int | None) -> None:
    """What is not deleted is only in the way: nothing of this may fail a query."""
    try:
        delete_written(options.staging, query, batch_id)
        if batch_id is None or batch_id % _SWEEP_EVERY == 0:
            delete_aged(options.staging, options.staging_age_s, time.time())
    except OSError as error:  # which says where; the location may have a password in it
        _log.warning("files that were staged are not deleted: %s", error)
