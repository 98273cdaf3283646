"""kafkawire's sink with a fault: a data source of its own, because Spark creates its writers and processes.

The test and the processes share a directory for their signals. Each fault happens once.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from pyspark import TaskContext

from spark_connectors.data_source import Kafkawire
from spark_connectors.sink.options import SinkOptions, sink_options
from spark_connectors.sink.writers import StagedRows, StreamWriter
from spark_connectors.wire.transport import Address, Stream, connect_tcp

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

NAME: Final = "faulty"
HELD_MAX_S: Final = 600.0  # a test releases requests earlier, unless it was ended before


@dataclass
class Trouble:
    """A Connect with a fault. The first request with this API key is held until the test releases it; or its answer is
    lost and the broker is unreachable for the process that asked. The end of `with` releases all."""

    directory: str
    api_key: int
    is_cut: bool = False
    is_out_of_reach: bool = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()

    def __call__(self, address: Address, timeout_s: float) -> Stream:
        if self.is_out_of_reach:
            raise ConnectionRefusedError
        return TroubledStream(connect_tcp(address, timeout_s), self)

    @property
    def path(self) -> Path:
        return Path(self.directory)

    @property
    def is_reached(self) -> bool:
        return (self.path / "reached").exists()

    def reach(self) -> None:
        (self.path / "reached").touch()

    def release(self) -> None:
        (self.path / "let go").touch()

    def note_outcome(self, outcome: str) -> None:
        """Note how the process that was held ended."""
        (self.path / "outcome.part").write_text(outcome)
        (self.path / "outcome.part").rename(self.path / "outcome")

    @property
    def outcome(self) -> str | None:
        path = self.path / "outcome"
        return path.read_text() if path.exists() else None

    def hold(self) -> None:
        deadline = time.monotonic() + HELD_MAX_S
        while not (self.path / "let go").exists():
            assert time.monotonic() < deadline, "nobody lets it go"
            time.sleep(0.02)


class TroubledStream:
    """A connection on which the fault may happen."""

    def __init__(self, stream: Stream, trouble: Trouble) -> None:
        self._stream = stream
        self._trouble = trouble
        self._is_answer_lost = False

    def settimeout(self, timeout_s: float) -> None:
        self._stream.settimeout(timeout_s)

    def sendall(self, data: bytearray, /) -> None:
        (api_key,) = struct.unpack_from(">h", data, 4)
        if api_key == self._trouble.api_key and not self._trouble.is_reached:
            self._trouble.reach()
            if self._trouble.is_cut:
                self._is_answer_lost = True
            else:
                self._trouble.hold()
        self._stream.sendall(data)

    def recv_into(self, buffer: memoryview, /) -> int:
        count = self._stream.recv_into(buffer)
        if self._is_answer_lost:
            self._trouble.is_out_of_reach = True
            raise ConnectionResetError
        return count

    def close(self) -> None:
        self._stream.close()


class Faulty(Kafkawire):
    """The sink with the options `fault`, a directory, `faultAt`, an API key, and `faultIs`: held, or cut."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def streamWriter(self, schema: StructType, overwrite: bool) -> FaultyWriter:  # noqa: N802 # Spark's name
        options = {name.lower(): value for name, value in self.options.items()}
        trouble = Trouble(options.pop("fault"), int(options.pop("faultat")), options.pop("faultis") == "cut")
        return FaultyWriter(sink_options(options), trouble)


class FaultyWriter(StreamWriter):
    """A writer with a fault. Its first task also fails once after it has staged its rows, if the test asks for it."""

    def __init__(self, options: SinkOptions, trouble: Trouble) -> None:
        super().__init__(options, trouble)
        self._trouble = trouble

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        staged = super().write(iterator)
        context = TaskContext.get()
        assert context is not None
        (self._trouble.path / f"attempt {context.attemptNumber()}").touch()
        if context.attemptNumber() == 0 and (self._trouble.path / "fail").exists():
            raise RuntimeError("this task is told to fail")
        return staged

    def commit(self, messages: Sequence[StagedRows | None], batchId: int) -> None:  # noqa: N803
        try:
            super().commit(messages, batchId)
        except Exception as error:
            self._trouble.note_outcome(type(error).__name__)
            raise
        self._trouble.note_outcome("done")
