"""An ext4 filesystem on a loop image, which can lose its power, become read-only, or be full.

Needs root. EXT4_IOC_SHUTDOWN without a log flush drops all data that were not synced, as a power cut would. It cannot
imitate a disk that loses its own cache in spite of a flush.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

from compat_tests.harness.requirements import need_command
from engine.files.filesystem import PosixFileSystem

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker

EXT4_IOC_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32), as XFS_IOC_GOINGDOWN
NO_LOG_FLUSH = struct.pack("I", 2)
UNMOUNT_TIMEOUT_S = 10
FILL_ATTEMPTS_MAX = 100  # an attempt fails if the broker takes some of the space at the same time


def need_loop_mounts() -> None:
    """Skip the test without root or the tools."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount an ext4 image")
    for command in ("mkfs.ext4", "losetup", "mount"):
        need_command(command, "install e2fsprogs and mount")


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


class LoopImage:
    """The filesystem, mounted inside `with`. Afterwards it is unmounted and its loop device is released, also after
    errors."""

    def __init__(self, directory: Path, size_mib: int, *, is_direct: bool = False) -> None:
        """`is_direct`: the blocks of the image have no second copy in the page cache of the machine, and deleted files
        leave the image, as far as the filesystem below can do that."""
        need_loop_mounts()
        directory.mkdir(parents=True, exist_ok=True)
        self._image = directory / "image"
        self._is_direct = is_direct
        self.mount_point = directory / "mounted"
        self.mount_point.mkdir()
        self._device = ""
        with self._image.open("wb") as image:
            image.truncate(size_mib << 20)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", str(self._image))

    def __enter__(self) -> Self:
        self._device = self._attach()
        try:
            self.mount()
        except BaseException:
            _run("losetup", "--detach", self._device)
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        # Lazily: a process a failed test left behind must not keep the mount.
        if os.path.ismount(self.mount_point):
            _run("umount", "--lazy", str(self.mount_point))
        _run("losetup", "--detach", self._device)

    def _attach(self) -> str:
        attach = ["losetup", "--find", "--show"]
        if self._is_direct:
            with suppress(subprocess.CalledProcessError):
                return _run(*attach, "--direct-io=on", str(self._image))
        return _run(*attach, str(self._image))

    def mount(self) -> None:
        options = "errors=remount-ro,discard" if self._is_direct else "errors=remount-ro"
        _run("mount", "-o", options, self._device, str(self.mount_point))

    def unmount(self) -> None:
        """Unmount, and retry: a process that was killed takes a moment to close its files."""
        deadline = time.monotonic() + UNMOUNT_TIMEOUT_S
        while True:
            try:
                _run("umount", str(self.mount_point))
            except subprocess.CalledProcessError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                return

    def shut_down(self) -> None:
        """Cut the power: every write and sync fails with EIO from now on, and data that were not synced are lost."""
        descriptor = os.open(self.mount_point, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, EXT4_IOC_SHUTDOWN, NO_LOG_FLUSH)
        finally:
            os.close(descriptor)

    def make_read_only(self) -> None:
        """Make the filesystem read-only, as ext4 does by itself if it finds damage. Open files cannot be written
        either."""
        (Path("/sys/fs/ext4") / Path(self._device).name / "trigger_fs_error").write_text("planted by a test")

    def fill(self, left_bytes: int) -> None:
        """Fill the disk up to so many bytes, until `empty`. The broker may write to it meanwhile."""
        for _ in range(FILL_ATTEMPTS_MAX):
            try:
                with self._ballast.open("wb") as ballast:  # an attempt that ran out of space has left some of it full
                    space = os.statvfs(self.mount_point)
                    os.posix_fallocate(ballast.fileno(), 0, space.f_bavail * space.f_frsize - left_bytes)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
            else:
                return
        raise AssertionError(f"{self.mount_point} gets no fuller: {os.statvfs(self.mount_point)}")

    def empty(self) -> None:
        """Free the space that `fill` takes, durably."""
        self._ballast.unlink()
        self.sync()

    def sync(self) -> None:
        """Sync the mount point, so that files made and deleted so far survive a power cut."""
        PosixFileSystem().sync_dir(str(self.mount_point))

    @property
    def _ballast(self) -> Path:
        return self.mount_point / "ballast"

    def cut_power(self, broker: Broker) -> None:
        """Cut the power of the whole machine, as far as the broker and its files are concerned."""
        self.shut_down()
        broker.kill()
        self.unmount()
        self.mount()
