"""The audit after the last restart: it reads all partitions from end to end, and looks records up in the index as
well."""

from __future__ import annotations

from dataclasses import dataclass

import trio

from kafkawire.requests.errors import ErrorCode
from kafkawire.tests.simulation.history import Place, Read, StoredRecord
from kafkawire.tests.simulation.network import LOST, Connection
from kafkawire.tests.simulation.reader import EARLIEST, LATEST, MAX_TIMESTAMP, Consumer

PATIENCE_S = 60.0
SAMPLES = 6  # of offsets and of timestamps, per partition
WHOLE_SIZE_BYTES = 1 << 20
MAY_PASS = (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER)  # so old clients know it


@dataclass
class Auditor(Consumer):
    """A consumer that expects every partition to answer."""

    async def ends(self) -> dict[Place, int]:
        """The present high watermarks."""
        found: dict[Place, int] = {}
        connection = await self.shared.connected(self.name, self.rng)
        for name, partition in self.places:
            end = await self._offset(connection, name, partition, LATEST)
            if end is not None:
                found[Place(self.shared.topics[name].topic_id, partition)] = end
        self.shared.network.disconnect(connection)
        return found

    async def read_everything(self) -> dict[Place, dict[int, StoredRecord]]:
        """The final records of every partition, each of them looked up in other ways too."""
        final = {}
        connection = await self.shared.connected(self.name, self.rng)
        try:
            for name, partition in self.places:
                records = await self._read_partition(connection, name, partition)
                if records is not None:
                    final[Place(self.shared.topics[name].topic_id, partition)] = records
                    await self._sample(connection, name, partition, records)
        except LOST as error:
            self.shared.history.troubles.append(f"the last reading was cut short: {error!r}")
        return final

    async def _read_partition(
        self, connection: Connection, name: str, partition: int
    ) -> dict[int, StoredRecord] | None:
        start = await self._offset(connection, name, partition, EARLIEST)
        end = await self._offset(connection, name, partition, LATEST)
        if start is None or end is None:
            return None
        records: dict[int, StoredRecord] = {}
        position = start
        while position < end:
            read = await self._read_patiently(connection, name, partition, position)
            if read is not None and read.error == ErrorCode.OFFSET_OUT_OF_RANGE:  # retention removed it meanwhile
                later = await self._offset(connection, name, partition, EARLIEST)
                if later is not None and later > position:
                    start = position = later
                    records = {offset: record for offset, record in records.items() if offset >= position}
                    continue
            if read is None or read.error or not read.batches:
                error = "nothing" if read is None or not read.error else f"error {read.error}"
                self.shared.history.troubles.append(f"{name}-{partition} gives {error} at {position}, end is {end}")
                return None
            for batch in read.batches:
                records.update((record.offset, record) for record in batch.records if record.offset >= start)
            position = read.batches[-1].last_offset + 1
        return records

    async def _read_patiently(self, connection: Connection, name: str, partition: int, offset: int) -> Read | None:
        """Read, and retry for a while: the records may be in the tier only, and the broker may have to load its
        manifest first."""
        life = self.shared.topics.get(name)
        with trio.move_on_after(PATIENCE_S):
            while True:
                read = await self.read_at(connection, name, partition, offset, partition_size_bytes=WHOLE_SIZE_BYTES)
                if life is None or not life.is_tiered or read is None or read.error not in MAY_PASS or read.batches:
                    return read
                await trio.sleep(0.1)
        return read

    async def _sample(
        self, connection: Connection, name: str, partition: int, records: dict[int, StoredRecord]
    ) -> None:
        chosen = self.rng.sample(sorted(records.values()), min(SAMPLES, len(records)))
        for record in chosen:
            await self.read_at(connection, name, partition, record.offset)
            nearby_ms = record.timestamp_ms + self.rng.choice((-1, 0, 0, 1))
            await self.list_offset(connection, name, partition, nearby_ms)
        await self.list_offset(connection, name, partition, MAX_TIMESTAMP)

    async def _offset(self, connection: Connection, name: str, partition: int, spec: int) -> int | None:
        """Look an offset up, and retry for a while: a partition may still be opening."""
        with trio.move_on_after(PATIENCE_S):
            while (found := await self.list_offset(connection, name, partition, spec)) is None:
                await trio.sleep(0.5)
            return found
        self.shared.history.troubles.append(f"{name}-{partition} does not come back")
        return None
