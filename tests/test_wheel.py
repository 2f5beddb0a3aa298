"""The wheel is held to what git tracks, and is played where the checkout cannot be found."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.wheel import WHERE, alone, environment_of, install, main, missing


def wheel(path: Path, *names: str) -> Path:
    """A file with these names in it."""
    with zipfile.ZipFile(path, "w") as file:
        for name in names:
            file.writestr(name, "")
    return path


def test_a_file_that_is_not_packaged_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = wheel(tmp_path / "w.whl", "tideline/__init__.py")
    tracked = ["shared/tideline/__init__.py", "server/tideline_server/store/migrations/script.py.mako"]
    assert missing(made, tracked) == tracked[1:]
    assert main(["--built", str(made)]) == 1
    assert "w.whl lacks client_agent/tideline_agent/" in capsys.readouterr().err


def test_a_wheel_that_is_none_is_not_installed(tmp_path: Path) -> None:
    made = wheel(tmp_path / "tideline-1.0-py3-none-any.whl")
    python = environment_of(tmp_path / "venv", full=False)
    with pytest.raises(Exception, match="The wheel cannot be installed"):
        install(python, made, False, tmp_path / "log")


def test_the_checkout_cannot_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages of this Python are there, and those that lie in the checkout are not, whatever the shell's variables are."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "shared"))
    python = environment_of(tmp_path / "venv", full=False)
    assert subprocess.run([python, "-c", "import httpx"], cwd=tmp_path, env=alone(tmp_path), check=False).returncode == 0
    done = subprocess.run([python, "-c", WHERE], cwd=tmp_path, env=alone(tmp_path), capture_output=True, text=True, check=False)
    assert "No module named 'tideline'" in done.stderr
