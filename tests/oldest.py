"""Tests with the oldest versions that pyproject.toml allows: what it says is enough must be enough.

    python -m tests.oldest [--into FOLDER]

It makes an environment of its own. Where no package index can be reached, it says so and ends with 0.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[1]
TESTED = (
    "tests/archive",
    "tests/core",
    "tests/server",
    "tests/acceptance/hostile",
    "tests/acceptance/test_same_bytes.py",
)
# What tests need beside the product, and the newest Python that the oldest packages have wheels for.
TOOLS = (
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "hypothesis",
    "psutil",
    "schemathesis",
    "packaging",
    "moto[s3]",
    "flask",
    "flask-cors",
)
PINNED = ("click<8.4",)  # newer ones warn of what old versions of typer use, and the tests' processes take warnings for errors
AWAY = ("Failed to establish a new connection", "NameResolutionError", "(from versions: none)")  # pip, without an index
NEWEST_PYTHON = (3, 13)


def floors(project: str) -> list[str]:
    """Each dependency of a pyproject.toml in the oldest version that it allows, and the stores' extras likewise."""
    given = tomllib.loads(project)["project"]
    lines = [*given["dependencies"], *given["optional-dependencies"]["s3"], *given["optional-dependencies"]["parquet"]]
    return [oldest(Requirement(line)) for line in lines]


def oldest(asked: Requirement) -> str:
    """A requirement of the oldest version alone."""
    extras = f"[{','.join(sorted(asked.extras))}]" if asked.extras else ""
    return f"{asked.name}{extras}=={lowest(asked.specifier)}"


def lowest(allowed: SpecifierSet) -> str:
    """The version behind `>=`."""
    (found,) = [each.version for each in allowed if each.operator == ">="]
    return found


def installed(folder: Path, wanted: Iterable[str]) -> bool:
    """Make an environment with these packages; False where there is no index. Raises SystemExit for what cannot be installed."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    pip = [str(python), str(ROOT / "tools" / "install.py"), str(folder / "install.log"), *wanted, *TOOLS, *PINNED]
    if not subprocess.run(pip, check=False).returncode:
        return True
    log = (folder / "install.log").read_text(errors="replace")
    if any(words in log for words in AWAY):
        return False
    sys.exit("The oldest versions that pyproject.toml allows do not go together")


def main() -> int:
    """Make the environment and play the tests; their exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, help="where the environment is made, and stays")
    given = parser.parse_args()
    if sys.version_info[:2] > NEWEST_PYTHON:
        print(f"!!! NOT TESTED: the oldest packages have no wheels for Python {sys.version_info.major}.{sys.version_info.minor}")
        return 0
    with tempfile.TemporaryDirectory(prefix="tideline-oldest-") as temporary:
        folder = (given.into or Path(temporary)).resolve()
        if not installed(folder, floors((ROOT / "pyproject.toml").read_text(encoding="utf-8"))):
            print("!!! NOT TESTED: no package index can be reached")
            return 0
        path = ":".join(str(ROOT / each) for each in ("shared", "server", "client_agent", "protos"))
        words = ("-m", "pytest", "-q", "-n", "2", "-W", "default", *TESTED)
        python = folder / "bin" / "python"
        return subprocess.run([python, *words], cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
