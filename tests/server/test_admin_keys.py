"""Admin keys in files that are replaced while a coordinator serves."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.server.api.api_world import Coordinator
from tideline.core.errors import ConfigRefused
from tideline.engine.coordinator.api_keys import hash_of
from tideline_server.keys import AdminKeys, admin_key
from tideline_server.settings import CoordinatorSettings

OLD, NEW = "an-old-key-of-enough-letters", "another-key-of-enough-letters"


def replace(path: Path, text: str) -> None:
    """As `mv` does it."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(path)


def test_a_key_that_is_replaced_counts_at_once(tmp_path: Path) -> None:
    """The old one is refused from the next call on, and nothing was restarted."""
    keys = AdminKeys(CoordinatorSettings(home=tmp_path))
    door = Coordinator(api_key_hash=keys.own, admins=keys)
    old = {"Authorization": f"Bearer {admin_key(tmp_path)}"}
    assert door.get("/runs", headers=old).status_code == 200 and len(keys) == 1
    with capture_logs() as lines:
        replace(tmp_path / "admin.key", NEW + "\n")
        assert door.get("/runs", headers=old).status_code == 401
    assert [line["event"] for line in lines if line["event"].startswith("admin_key")] == ["admin_key_changed"]
    assert door.get("/runs", headers={"Authorization": f"Bearer {NEW}"}).status_code == 200


def test_the_key_of_all_replicas(tmp_path: Path) -> None:
    """The same; the home's own stays."""
    shared = tmp_path / "shared.key"
    shared.write_text(OLD)
    (tmp_path / "home").mkdir()
    keys = AdminKeys(CoordinatorSettings(home=tmp_path / "home", admin_key_file=shared))
    assert hash_of(OLD) in keys and len(keys) == 2
    replace(shared, NEW)
    assert hash_of(NEW) in keys and hash_of(OLD) not in keys and hash_of(admin_key(tmp_path / "home")) in keys


@pytest.mark.parametrize("text", [None, "", "short", "two words that are long enough"])
def test_a_file_without_a_key_changes_nothing(tmp_path: Path, text: str | None) -> None:
    """Whoever lost it is let in by the key that was there, until the coordinator starts again; the log says so once."""
    keys, old = AdminKeys(CoordinatorSettings(home=tmp_path)), admin_key(tmp_path)
    with capture_logs() as lines:
        (tmp_path / "admin.key").unlink() if text is None else replace(tmp_path / "admin.key", text)
        assert hash_of(old) in keys and hash_of(old) in keys
    assert [line["event"] for line in lines] == ["admin_key_not_read"]
    replace(tmp_path / "admin.key", NEW)
    assert hash_of(NEW) in keys and hash_of(old) not in keys


def test_a_key_in_the_environment_stands_before_the_file(tmp_path: Path) -> None:
    """And a short one is refused at the start."""
    (tmp_path / "shared.key").write_text(NEW)
    given = CoordinatorSettings(home=tmp_path, admin_key=OLD, admin_key_file=tmp_path / "shared.key")
    keys = AdminKeys(given)
    assert hash_of(OLD) in keys and hash_of(NEW) not in keys
    replace(tmp_path / "shared.key", "a-third-key-of-enough-letters")
    assert hash_of(OLD) in keys
    with pytest.raises(ConfigRefused, match="24 or more"):
        AdminKeys(CoordinatorSettings(home=tmp_path, admin_key="short"))
