"""One process at a time in a folder."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAME = ".lock"


class FolderLocked(ValueError):
    """A folder is in use by another process, or cannot be locked at all."""


@contextmanager
def folder_lock(folder: str | Path) -> Iterator[None]:
    """Holds the folder, which is made if need be; refuses if another process or thread holds it.

    The lock belongs to an open file, `.lock` in the folder, and the system releases it when its
    holder ends, however it ends: a file that was left behind is no obstacle. The file says who
    holds the folder, and stays.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Not truncated: until the lock is ours, what is written there is the holder's.
        handle = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise FolderLocked(f"cannot write to the folder {folder}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FolderLocked(
                f"the folder {folder} is in use by {_holder(handle)}; "
                "wait until it has ended, or choose another folder"
            ) from error
        except OSError as error:
            raise FolderLocked(
                f"cannot lock the folder {folder}: its file system has no locks "
                f"({error.strerror}); choose one on another disk"
            ) from error
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        _write(handle, f"process {os.getpid()} on {socket.gethostname()} since {since}")
        yield
        _write(handle, "")
    finally:
        # Said explicitly: a child that was forked meanwhile has the same open file.
        fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def _holder(handle: int) -> str:
    """Who wrote the file; nobody has, if the holder is just beginning."""
    text = os.pread(handle, 200, 0).decode(errors="replace").strip()
    return text if text.isprintable() and text else "another process"


def _write(handle: int, text: str) -> None:
    """The holder's name is a courtesy: a full disk must not take the lock away."""
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, text.encode(), 0)
    except OSError:
        return
