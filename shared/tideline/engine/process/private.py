"""What a coordinator and an agent have on disk is for the user alone who runs them: models, memories and keys lie there."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from tideline.core.errors import Refused

OTHERS = 0o077
SPARED = ".pem"  # keys that others could read are refused where they are used: they may have been read


def for_the_owner_alone() -> None:
    """What this process makes from here on, and what its children make, nobody else can read."""
    os.umask(OTHERS)


def close_home(folder: Path) -> None:
    """Make a home, or take from others what they may do in it and with what lies directly in it.

    Folders in it keep others from what lies deeper. Raises Refused for a file of another user that is open to others. A home may
    be another user's, as a volume's root is: then what it holds is closed.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    closed = [str(path) for path in (folder, *sorted(folder.iterdir())) if close(path, root=path == folder)]
    report(closed)


def close_database(path: Path) -> None:
    """The same for an SQLite file and the two beside it, wherever they lie. Raises Refused."""
    closed = [str(each) for each in beside(path) if close(each)]
    report(closed)


def report(closed: list[str]) -> None:
    import structlog  # commands that close nothing start without it

    if closed:
        structlog.get_logger().warning("closed_to_others", paths=closed)


def beside(path: Path) -> Iterator[Path]:
    """A database's files, as far as they are there."""
    yield from (each for each in (path.with_name(path.name + more) for more in ("", "-wal", "-shm")) if each.exists())


def close(path: Path, root: bool = False) -> bool:
    """Whether it was open to others, and is no longer. root: of a home, which may stay as it is. Raises Refused."""
    said = path.lstat().st_mode
    if stat.S_ISLNK(said) or path.suffix == SPARED:
        return False
    mode = stat.S_IMODE(said)
    # A folder with this bit has a group on purpose, as Kubernetes gives one to a volume.
    left = mode & ~(0o007 if mode & stat.S_ISGID else OTHERS)
    if left == mode:
        return False
    try:
        path.chmod(left)
    except PermissionError:
        if root:
            return False
        what = f"Others may read {path} (mode {mode:04o}), which belongs to another user"
        raise Refused(what, f"Let its owner run this, or: chown {os.geteuid()} {path}") from None
    return True
