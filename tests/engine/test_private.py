"""What lies in a home is for its owner: also where the home was there before, open to all."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from tideline.core.errors import Refused
from tideline.engine.process.private import close_home
from tideline_server.store import SqlJournal


def mode(path: Path) -> int:
    """What it lets whom do."""
    return stat.S_IMODE(path.stat().st_mode)


def open_to_all(folder: Path) -> Path:
    """A home as a tired administrator makes it."""
    (folder / "runs" / "one").mkdir(parents=True)
    for name in ("admin.key", "keys.pem", "coordinator.json"):
        (folder / name).write_text("x")
        (folder / name).chmod(0o644)
    (folder / "elsewhere").symlink_to("/")
    for each in (folder, folder / "runs"):
        each.chmod(0o755)
    return folder


def test_a_home_that_was_open_is_closed(tmp_path: Path) -> None:
    """The folder, and what lies directly in it. Keys that may have been read are left for those who refuse them."""
    home = open_to_all(tmp_path / "home")
    close_home(home)
    assert (mode(home), mode(home / "runs"), mode(home / "admin.key")) == (0o700, 0o700, 0o600)
    assert mode(home / "keys.pem") == 0o644
    assert mode(Path("/")) & 0o005, "what a link leads to is left alone"


def test_a_new_home_is_closed(tmp_path: Path) -> None:
    """From the start."""
    close_home(tmp_path / "home")
    assert mode(tmp_path / "home") == 0o700


def test_a_volumes_group_stays(tmp_path: Path) -> None:
    """A folder that gives its group to what is made in it has one on purpose."""
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o2775)
    close_home(home)
    assert mode(home) == 0o2770


def test_a_database_elsewhere_is_closed(tmp_path: Path) -> None:
    """With the files that SQLite has beside it."""
    path = tmp_path / "a.db"
    SqlJournal(path).close()
    path.chmod(0o644)
    with closing(SqlJournal(path)):
        assert [mode(each) for each in sorted(tmp_path.iterdir())] == [0o600] * len(list(tmp_path.iterdir()))


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's file takes root to make")
def test_what_belongs_to_another_user_is_refused() -> None:
    """In words. The home itself may be another's."""
    with tempfile.TemporaryDirectory() as folder:  # which another user can reach, as those of pytest are not
        Path(folder).chmod(0o755)
        refuse_anothers(open_to_all(Path(folder) / "home"))


def refuse_anothers(home: Path) -> None:
    """Play a user to whom neither a home nor a file in it belongs."""
    for each in (home, home / "admin.key"):
        os.chown(each, 1234, -1)
    os.seteuid(4321)
    try:
        with pytest.raises(Refused, match=r"Others may read .*/admin.key \(mode 0644\), which belongs to another user"):
            close_home(home)
    finally:
        os.seteuid(0)
