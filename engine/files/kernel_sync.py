"""Syncs by the kernel's own workers (Linux AIO): no thread here, and no wait for the interpreter lock.

`io_submit` with IOCB_CMD_FDSYNC starts any number of syncs with one system call. An eventfd tells the event loop when
they are done. If the kernel or a sandbox does not offer AIO, opening a context raises OSError, and the pool syncs in
threads.

A context holds a bounded number of syncs, and a disk that hangs never returns its own. So each worker of the pool has a
context of its own: syncs of one disk never take the room of another, and flushes never that of commit batches.
docs/decisions/0014-kernel-sync.md has the measurements.
"""

import ctypes
import os
import platform
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import trio

QUEUE_LENGTH: Final = 128
_POINTER_SIZE_BYTES: Final = 8
_SYSCALLS: Final = {  # io_setup, io_destroy, io_getevents, io_submit
    "x86_64": (206, 207, 208, 209),
    "aarch64": (0, 1, 4, 2),
}
_FDSYNC: Final = 3  # IOCB_CMD_FDSYNC
_NOTIFY: Final = 1  # IOCB_FLAG_RESFD
_IOCB: Final = struct.Struct(
    "<QIiHhIQQqQII"
)  # data, key, rw flags, opcode, priority, fd, buf, n, offset, -, flags, efd
_EVENT: Final = struct.Struct("<QQqq")  # data, iocb, result, -


class _Batch:
    """Syncs that were submitted together, and the task that waits for them."""

    __slots__ = ("errno", "is_urgent", "remaining", "task")

    def __init__(self, remaining: int, *, is_urgent: bool) -> None:
        self.remaining = remaining
        self.is_urgent = is_urgent
        self.errno = 0
        self.task: trio.lowlevel.Task | None = None

    def finish(self, count: int, errno: int) -> None:
        self.remaining -= count
        self.errno = self.errno or errno
        if not self.remaining and self.task is not None:
            trio.lowlevel.reschedule(self.task)


class KernelSync:
    """An AIO context, and the task that collects its results. Create and use it inside `trio.run`. Raises OSError."""

    def __init__(self) -> None:
        numbers = _SYSCALLS.get(platform.machine())
        if platform.system() != "Linux" or numbers is None:
            raise OSError(f"no AIO on {platform.system()} {platform.machine()}")
        setup, self._io_destroy, self._io_getevents, self._io_submit = numbers
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self._context = ctypes.c_ulong(0)
        if self._syscall(setup, QUEUE_LENGTH, ctypes.byref(self._context)) < 0:
            raise OSError(ctypes.get_errno(), "io_setup")
        self._completions = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._blocks = ctypes.create_string_buffer(_IOCB.size * QUEUE_LENGTH)
        start = ctypes.addressof(self._blocks)
        self._pointers = (ctypes.c_void_p * QUEUE_LENGTH)(*range(start, start + len(self._blocks), _IOCB.size))
        self._events = ctypes.create_string_buffer(_EVENT.size * QUEUE_LENGTH)
        self._batches: dict[int, _Batch] = {}
        self._last_ticket = 0
        self._in_flight = 0
        self._urgent = 0  # of those in flight
        self._waiting_for_room = trio.lowlevel.ParkingLot()
        self._next_for_room = trio.StrictFIFOLock()  # so that small batches do not overtake a large one for ever
        self._life = trio.CancelScope()
        trio.lowlevel.spawn_system_task(self._reap)

    @property
    def has_urgent(self) -> bool:
        """Whether a sync that a commit batch waits for is in flight."""
        return self._urgent > 0

    async def sync(self, descriptors: Sequence[int], *, is_urgent: bool = False) -> None:
        """Make the content of all files durable. Raises the OSError of one. Not cancellable, because the disk would go
        on."""
        for start in range(0, len(descriptors), QUEUE_LENGTH):
            chunk = descriptors[start : start + QUEUE_LENGTH]
            await self._sync_chunk(chunk, _Batch(len(chunk), is_urgent=is_urgent))

    async def _sync_chunk(self, descriptors: Sequence[int], batch: _Batch) -> None:
        if self._next_for_room.locked() or self._in_flight + len(descriptors) > QUEUE_LENGTH:
            with trio.CancelScope(shield=True):
                async with self._next_for_room:
                    while self._in_flight + len(descriptors) > QUEUE_LENGTH:
                        await self._waiting_for_room.park()
        self._submit(descriptors, batch)
        if batch.remaining:
            batch.task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)
        if batch.errno:
            raise OSError(batch.errno, os.strerror(batch.errno))

    def _submit(self, descriptors: Sequence[int], batch: _Batch) -> None:
        self._last_ticket += 1
        ticket = self._last_ticket
        for index, descriptor in enumerate(descriptors):
            block = (ticket, 0, 0, _FDSYNC, 0, descriptor, 0, 0, 0, 0, _NOTIFY, self._completions)
            _IOCB.pack_into(self._blocks, index * _IOCB.size, *block)
        submitted = 0
        while submitted < len(descriptors):
            remaining = len(descriptors) - submitted
            pointers = ctypes.byref(self._pointers, submitted * _POINTER_SIZE_BYTES)
            accepted = self._syscall(self._io_submit, self._context, ctypes.c_long(remaining), pointers)
            if accepted < 0:
                batch.finish(remaining, ctypes.get_errno())
                break
            submitted += accepted
        self._in_flight += submitted
        self._urgent += submitted * batch.is_urgent
        if submitted:
            self._batches[ticket] = batch

    async def _reap(self) -> None:
        try:
            with self._life:
                while True:
                    await trio.lowlevel.wait_readable(self._completions)
                    os.eventfd_read(self._completions)
                    self._take_events()
        finally:
            if not self._in_flight:  # otherwise the system call, and the event loop, would wait for the disk
                self._syscall(self._io_destroy, self._context)
                os.close(self._completions)

    def _take_events(self) -> None:
        count = self._syscall(
            self._io_getevents, self._context, ctypes.c_long(0), ctypes.c_long(QUEUE_LENGTH), self._events, None
        )
        for index in range(count):
            ticket, _, result, _ = _EVENT.unpack_from(self._events, index * _EVENT.size)
            batch = self._batches[ticket]
            batch.finish(1, -result if result < 0 else 0)
            self._urgent -= batch.is_urgent
            if not batch.remaining:
                del self._batches[ticket]
        self._in_flight -= max(count, 0)
        self._waiting_for_room.unpark_all()

    def close(self) -> None:
        """Close the context. If a disk has not answered a sync, the context stays until the process ends."""
        self._life.cancel()


class KernelSyncs(trio.abc.Instrument):
    """The AIO contexts of a pool: one for each worker that syncs, created at its first sync.

    The kernel's worker runs on the CPU that submitted the sync. If the event loop never blocks, the worker would wait
    for a whole scheduler tick (4 ms). So a busy loop yields its CPU at every turn while an urgent sync is in flight.
    """

    def __init__(self, new_context: Callable[[], KernelSync] = KernelSync) -> None:
        self._new_context = new_context
        self._by_worker: dict[int, KernelSync | None] = {}
        self._contexts: list[KernelSync] = []
        trio.lowlevel.add_instrument(self)

    def of(self, worker: int) -> KernelSync | None:
        """The context of a worker. None: the kernel refused one (fs.aio-max-nr, a sandbox), and a thread syncs."""
        try:
            return self._by_worker[worker]
        except KeyError:
            return self._open(worker)

    def _open(self, worker: int) -> KernelSync | None:
        context = None
        with suppress(OSError):
            context = self._new_context()
            self._contexts.append(context)
        self._by_worker[worker] = context
        return context

    def before_io_wait(self, timeout: float) -> None:
        if timeout <= 0:
            for context in self._contexts:
                if context.has_urgent:
                    os.sched_yield()
                    return

    def close(self) -> None:
        """Close all contexts, as `KernelSync.close`."""
        trio.lowlevel.remove_instrument(self)
        for context in self._contexts:
            context.close()
