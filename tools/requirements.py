"""What a project needs, a line each, without the project: `python requirements.py PYPROJECT [EXTRA ...]`."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def main(pyproject: str, *extras: str) -> None:
    """Print the dependencies, and those of the extras."""
    project = tomllib.loads(Path(pyproject).read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    needed = [*project["dependencies"], *(line for name in extras for line in optional[name])]
    sys.stdout.writelines(f"{each}\n" for each in needed)


if __name__ == "__main__":
    main(*sys.argv[1:])
