"""Which file a name or a descriptor means, and whether SQLite can rely on its file system."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from tightbudget.errors import LedgerError

Identity = tuple[int, int]  # device and number of a file, whatever its name

# File systems that several machines share, which agree neither on locks nor on a mapped -shm.
_REMOTE = frozenset((
    "9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gfs2", "glusterfs", "gpfs",
    "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "smb3", "smbfs", "fuse.ceph",
    "fuse.davfs", "fuse.gcsfuse", "fuse.glusterfs", "fuse.juicefs", "fuse.mount-s3", "fuse.rclone",
    "fuse.s3fs", "fuse.smbnetfs", "fuse.sshfs",
))  # fmt: skip


def identity_of(file: str | int) -> Identity | None:
    """Reads the device and the number of a file; None if there is no such file."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def only_name_of(path: str) -> Identity:
    """Returns which file a path means.

    Raises:
        LedgerError: the file has other names, too.
        OSError: there is none.
    """
    found = os.stat(path)
    if found.st_nlink > 1:
        raise LedgerError(
            f"{path} has {found.st_nlink} names (hard links), and a charge under one of them"
            " is not seen under another: remove the others"
        )
    return found.st_dev, found.st_ino


def still_open(descriptors: dict[int, Identity]) -> dict[int, Identity]:
    """Keeps the descriptors that nothing else in this process has closed since."""
    return {fd: file for fd, file in descriptors.items() if identity_of(fd) == file}


def open_descriptors() -> list[int]:
    """Lists the open descriptors of this process; none where the system does not tell."""
    try:
        return [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        return []


def check_place(path: str) -> None:
    """Refuses a network file system, and a file that is mounted without its folder."""
    found = identity_of(path)
    if found is None:
        return  # SQLite will say so
    for device, point, kind in mounts():
        if kind in _REMOTE and device == f"{os.major(found[0])}:{os.minor(found[0])}":
            raise LedgerError(
                f"{path} is on a network file system ({kind}), whose locks SQLite cannot rely on:"
                " take a local disk, PostgreSQL, or a server of the ledger (tightbudget serve)"
            )
        if point == path and not os.path.isdir(path):
            raise LedgerError(
                f"{path} is mounted alone, and its -wal would be elsewhere: mount its folder"
            )


def mounts() -> Iterator[tuple[str, str, str]]:
    """Lists each file system's device, mount point and type, where the system tells them."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        before, _, after = line.partition(" - ")
        _, _, device, _, point, *_ = before.split()
        # blanks and backslashes are written in octal
        path = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), point)
        yield device, path, after.split()[0]
