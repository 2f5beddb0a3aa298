"""Tests of followers with real experiment trackers, in an environment of their own: these hold back packages of the suite.

    python -m tests.trackers [--into FOLDER]      make the environment, and play the tests in it

Where no package index can be reached, it says so and ends with 0.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from pathlib import Path

from tests.oldest import ROOT, installed

NO_INDEX = "!!! NOT TESTED: no package index can be reached; no run was written into a real tracker"


def wanted(project: str) -> list[str]:
    """The packages of the trackers, by a pyproject.toml."""
    lines: list[str] = tomllib.loads(project)["dependency-groups"]["trackers"]
    return lines


def beside(folder: Path) -> None:
    """Everything that is installed here is there too, behind what the environment has itself."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    here = sysconfig.get_path("purelib")
    (folder / "lib" / version / "site-packages" / "zz_suite.pth").write_text(f"{here}\n")


def played(python: Path) -> int:
    """Play the tests with this interpreter; their exit code."""
    path = ":".join(str(ROOT / each) for each in ("shared", "server", "client_agent", "protos"))
    words = ("-m", "pytest", "-m", "", "-q", "-rs", "-W", "default", "--durations=10", "tests/tracking")
    return subprocess.run([python, *words], cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, check=False).returncode


def main() -> int:
    """Make the environment and play the tests; their exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, help="where the environment is made, and stays")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tideline-trackers-") as temporary:
        folder = (given.into or Path(temporary)).resolve()
        if not installed(folder, wanted((ROOT / "pyproject.toml").read_text(encoding="utf-8"))):
            print(NO_INDEX)
            return 0
        beside(folder)
        return played(folder / "bin" / "python")


if __name__ == "__main__":
    sys.exit(main())
