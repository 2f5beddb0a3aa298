"""Tests with the oldest versions that pyproject.toml allows: what it says is enough must be enough.

    python -m tests.oldest [--into FOLDER]      make the environment, and play the tests in it
    python -m tests.oldest --list               print what it installs, a line each

It makes an environment of its own: 6 GB, most of them torch's. Where no package index can be reached, it says what to do and
ends with 0.
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
# What these tests need beside the product: lines of the dev group, any version that it allows.
TOOLS = ("pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "psutil", "moto", "flask", "flask-cors")
PINNED = (
    "packaging",
    "click<8.4",
)  # newer clicks warn of what old versions of typer use; the tests' processes take that for an error
# Schemathesis wants a newer rich than the product does; its own tests stay with the newest versions.
LEFT_OUT = ("tests/server/api/test_api_properties.py",)
NEWEST_PYTHON = (3, 13)  # that the oldest packages have wheels for
APART = ("ResolutionImpossible", "conflicting dependencies")  # pip, where versions exclude each other
AWAY = ("Retrying (Retry(", "(from versions: none)")  # pip, without an index
NO_INDEX = """!!! NOT TESTED: no package index can be reached
Name one that can be (PIP_INDEX_URL), or fetch the wheels where one can be, with the same Python, and bring the folder here:
    python -m tests.oldest --list > oldest.txt && pip download --requirement oldest.txt --dest wheels
    PIP_NO_INDEX=1 PIP_FIND_LINKS=wheels python -m tests.oldest"""


def floors(project: str) -> list[str]:
    """Each dependency of a pyproject.toml in the oldest version that it allows, and the stores' extras likewise."""
    given = tomllib.loads(project)["project"]
    lines = [*given["dependencies"], *given["optional-dependencies"]["s3"], *given["optional-dependencies"]["parquet"]]
    return [oldest(Requirement(line)) for line in lines]


def tools(project: str) -> list[str]:
    """The lines of the dev group that these tests need."""
    lines = tomllib.loads(project)["dependency-groups"]["dev"]
    return [*(line for line in lines if Requirement(line).name in TOOLS), *PINNED]


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
    log = folder / "install.log"
    log.unlink(missing_ok=True)
    command = [str(folder / "bin" / "python"), str(ROOT / "tools" / "install.py"), str(log), *wanted]
    if not subprocess.run(command, check=False).returncode:
        return True
    if os.environ.get("PIP_NO_INDEX") or no_index(log.read_text(errors="replace")):
        return False
    sys.exit("The oldest versions that pyproject.toml allows do not go together, or one of them does not exist: see above")


def no_index(told: str) -> bool:
    """Whether pip failed because it reached no index: by what it told."""
    return any(words in told for words in AWAY) and not any(words in told for words in APART)


def played(python: Path) -> int:
    """Play the tests with this interpreter; their exit code."""
    path = ":".join(str(ROOT / each) for each in ("shared", "server", "client_agent", "protos"))
    words = ("-m", "pytest", "-q", "-n", "2", "-W", "default", *TESTED, *(f"--ignore={each}" for each in LEFT_OUT))
    return subprocess.run([python, *words], cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, check=False).returncode


def main() -> int:
    """Make the environment and play the tests; their exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, help="where the environment is made, and stays")
    parser.add_argument("--list", action="store_true", help="print what would be installed, and do nothing")
    given = parser.parse_args()
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    wanted = [*floors(project), *tools(project)]
    if given.list:
        print(*wanted, sep="\n")
        return 0
    if sys.version_info[:2] > NEWEST_PYTHON:
        print(f"!!! NOT TESTED: the oldest packages have no wheels for Python {sys.version_info.major}.{sys.version_info.minor}")
        return 0
    with tempfile.TemporaryDirectory(prefix="tideline-oldest-") as temporary:
        folder = (given.into or Path(temporary)).resolve()
        if not installed(folder, wanted):
            print(NO_INDEX)
            return 0
        return played(folder / "bin" / "python")


if __name__ == "__main__":
    sys.exit(main())
