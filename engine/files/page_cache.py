"""Look-up of a file's pages in the page cache by `cachestat`: exact, a microsecond for a MiB.

Linux has it since 6.5. Without it, or in a sandbox that forbids it, the number is not known.
"""

import ctypes
import struct
import sys
from collections.abc import Callable
from typing import Final

_CACHESTAT: Final = 451  # on every architecture but Alpha
_RANGE: Final = struct.Struct("=QQ")
_STAT: Final = struct.Struct("=5Q")  # pages in the cache, dirty, in writeback, evicted, evicted of late


def _find_syscall() -> Callable[..., int] | None:
    if sys.platform != "linux":
        return None
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint)
    found: Callable[..., int] = call
    return found


_syscall = _find_syscall()


def cached_pages(descriptor: int, position: int, size_bytes: int) -> int | None:
    """How many pages of the range are in the page cache, or on their way; None if the kernel does not say."""
    if _syscall is None:
        return None
    stat = ctypes.create_string_buffer(_STAT.size)
    if _syscall(_CACHESTAT, descriptor, _RANGE.pack(position, size_bytes), stat, 0):
        return None
    pages: int = _STAT.unpack(stat)[0]
    return pages
