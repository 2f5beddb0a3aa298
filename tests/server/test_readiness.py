"""Whether a coordinator can take work: every reason why not, and over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tideline.core.errors import Unreachable
from tideline.core.run import Digest
from tideline.engine.memory_journal import MemoryJournal
from tideline_server import readiness
from tideline_server.readiness import Readiness, free_bytes


class Away(MemoryJournal):
    """A database that does not answer."""

    def marker(self, ours: Digest | None = None) -> Digest | None:
        raise Unreachable("The store does not answer", "Wait")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every look is a new one."""
    monkeypatch.setattr(readiness, "FRESH_SECONDS", 0.0)
    yield


def test_all_is_well(tmp_path: Path) -> None:
    """Then there is no reason."""
    assert Readiness(MemoryJournal(), lambda: True, lambda: False, [tmp_path]).reasons() == ()


def test_every_reason_is_told(tmp_path: Path) -> None:
    """Not only the first."""
    gone = tmp_path / "gone"
    found = Readiness(Away(), lambda: False, lambda: True, [tmp_path, gone], least=2**62).reasons()
    assert found[:3] == ("it is stopping", "The store does not answer", "the numeric worker is not running")
    assert "MB left" in found[3] and found[4] == f"{gone} cannot be looked at"
    assert free_bytes(tmp_path) and free_bytes(gone) is None


def test_a_look_is_good_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody may ask, as often as he likes, and the database is asked once."""
    monkeypatch.setattr(readiness, "FRESH_SECONDS", 60.0)
    looks = []
    ready = Readiness(MemoryJournal(), lambda: bool(looks.append(1)) or True, lambda: False, [tmp_path])
    assert [ready.reasons() for _ in range(5)] == [()] * 5 and len(looks) == 1
