"""The wheel, as its users have it: built from this checkout, installed where nothing of the checkout can be found, and played.

    python -m tests.wheel                 with the packages that are installed beside this Python: half a minute
    python -m tests.wheel --full          with packages of its own, as `pip install` takes them: 6 GB and some minutes
    python -m tests.wheel --built FILE    of a wheel that is there, such as one of dist/

It checks that the wheel has every file of the packages that git tracks, and that the demonstration plays from it: a coordinator
and four agents, in a folder that is no checkout.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from tools.wheels import PACKAGES, ROOT, Failed, build, git, working_tree

DEMONSTRATION = ("demo", "--method", "fedavg", "--rounds", "1")
WHERE = "import tideline, tideline_server, tideline_agent, tideline_protos as p; print(tideline.__file__, p.__path__[0])"
NO_INDEX = "!!! NOT TESTED: no package index can be reached; the wheel was not installed with packages of its own"
AWAY = ("Retrying (Retry(", "(from versions: none)")  # pip, without an index


def missing(wheel: Path, tracked: Iterable[str]) -> list[str]:
    """Files of the packages that a wheel lacks. tracked: their paths in the repository."""
    inside = set(zipfile.ZipFile(wheel).namelist())
    return sorted(name for name in tracked if name.partition("/")[2] not in inside)


def environment_of(folder: Path, full: bool) -> Path:
    """An environment with pip; where it is not full, it finds this Python's packages behind its own. Its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", *(() if full else ("--without-pip",)), str(folder)], check=True)
    python = folder / "bin" / "python"
    if not full:
        # A folder in a .pth file is only put on the path: .pth files inside it, such as that of the checkout, are not read.
        places = dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
        (own,) = folder.glob("lib/python*/site-packages")
        (own / "behind.pth").write_text("".join(f"{place}\n" for place in places))
    return python


def alone(folder: Path) -> dict[str, str]:
    """An environment for processes, without what leads to the checkout or to a user's own homes."""
    left = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TIDELINE_", "VIRTUAL_ENV"))}
    return left | {"HOME": str(folder), "PATH": os.pathsep.join((str(folder / "venv" / "bin"), os.environ["PATH"]))}


def install(python: Path, wheel: Path, full: bool, log: Path) -> bool:
    """Install the wheel; False where no index can be reached for what it needs. Raises Failed."""
    pip = [str(python), "-m", "pip", "install"] if full else [sys.executable, "-m", "pip", "--python", str(python), "install"]
    words = [*pip, "--disable-pip-version-check", *(() if full else ("--no-deps", "--no-index")), str(wheel)]
    with log.open("w") as file:
        done = subprocess.run(words, stdout=file, stderr=subprocess.STDOUT, check=False)
    said = log.read_text(errors="replace")
    if done.returncode and full and any(each in said for each in AWAY):
        return False
    if done.returncode:
        raise Failed(f"The wheel cannot be installed: {said[-1500:]}", "See what pip says above")
    return True


def play(python: Path, place: Path) -> None:
    """The demonstration from the wheel, in a folder that is no checkout. Raises Failed."""
    environment = alone(place)
    found = subprocess.run([python, "-c", WHERE], cwd=place, env=environment, capture_output=True, text=True, check=False)
    if found.returncode or not all(each.startswith(str(place)) for each in found.stdout.split()):
        raise Failed(
            f"Something else than the wheel was loaded: {found.stdout}{found.stderr}", "Look for it on the path of Python"
        )
    command = [str(python.parent / "tideline"), *DEMONSTRATION, "--out", str(place / "out")]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
    if done.returncode or not (place / "out" / "report.html").exists():
        raise Failed(
            f"The demonstration failed: {(done.stdout + done.stderr)[-3000:]}", "A file that it needs may not be packaged"
        )


def main(words: Sequence[str] | None = None) -> int:
    """Build, install, play; 1 if anything of it fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="with packages of its own")
    parser.add_argument("--built", type=Path, help="a wheel that is there")
    given, began = parser.parse_args(words), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tideline-wheel-") as name:
        place = Path(name).resolve()
        try:
            wheel = given.built or build(working_tree(ROOT, place / "source"), place / "dist", int(time.time()))
            if lacking := missing(wheel, git(ROOT, "ls-files", *PACKAGES).splitlines()):
                raise Failed(f"{wheel.name} lacks {', '.join(lacking)}", "See [tool.hatch.build] in pyproject.toml")
            python = environment_of(place / "venv", given.full)
            if not install(python, wheel, given.full, place / "install.log"):
                print(NO_INDEX)
                return 0
            play(python, place)
        except Failed as failure:
            print(f"Error: {failure.what}\nWhat to do: {failure.todo}", file=sys.stderr)
            return 1
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, demonstrated in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
