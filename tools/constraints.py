"""What images install beside torch, in the versions installed here: `python tools/constraints.py > deploy/constraints.txt`.

torch, torchvision and what they bring for GPUs are left out: the Dockerfile's TORCH names them, and they name their own.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PYPROJECT = Path(__file__).parent.parent / "pyproject.toml"
EXTRAS = ("s3", "parquet")  # as the Dockerfile asks for
TORCHS = re.compile(r"(torch|torchvision|triton|nvidia-.*|cuda-.*)$")
# What packages ask for on some Pythons that images may be built on, and not on this one.
ELSEWHERE = {"async-timeout": "5.0.1"}  # redis, below Python 3.11.3
HEAD = "# Made by tools/constraints.py from an environment that the tests pass in: what the images install beside torch.\n"


def asked(project: str, extras: Iterable[str] = EXTRAS) -> list[Requirement]:
    """What a pyproject.toml asks for."""
    told = tomllib.loads(project)["project"]
    lines = [*told["dependencies"], *(line for name in extras for line in told["optional-dependencies"][name])]
    return [Requirement(line) for line in lines]


def needed(first: Iterable[Requirement]) -> dict[str, str]:
    """The versions of these, and of all that they need, as installed here; torch's own family is gone through and left out."""
    found: dict[str, str] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    left = list(first)
    while left:
        each = left.pop()
        name, extras = canonicalize_name(each.name), frozenset(each.extras)
        if (name, extras) in seen or re.match(r"(triton|nvidia-|cuda-)", name):
            continue
        seen.add((name, extras))
        if not TORCHS.match(name):
            found[name] = version(name)
        left += [more for line in requires(name) or () if wanted(more := Requirement(line), extras)]
    return found


def wanted(each: Requirement, extras: Iterable[str]) -> bool:
    """Whether a package needs this here, with these extras."""
    return each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in ("", *extras))


if __name__ == "__main__":
    made = ELSEWHERE | needed(asked(PYPROJECT.read_text(encoding="utf-8")))
    sys.stdout.write(HEAD + "".join(f"{name}=={made[name]}\n" for name in sorted(made)))
