"""What images are made of: each package in one version, wherever and whenever they are built."""

from __future__ import annotations

import importlib.util
import re
from importlib.metadata import PackageNotFoundError, requires, version
from types import ModuleType

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.docs.manual import ROOT

RECIPE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
FILE = ROOT / "deploy" / "constraints.txt"
LINES = FILE.read_text(encoding="utf-8").splitlines()
LOCKED = (ROOT / "deploy" / "locked.txt").read_text(encoding="utf-8")
PINS = dict(line.split("==") for line in LINES if not line.startswith("#"))


def tool() -> ModuleType:
    """tools/constraints.py."""
    spec = importlib.util.spec_from_file_location("constraints", ROOT / "tools" / "constraints.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


TOOL = tool()


def torch(text: str) -> list[Requirement]:
    """The first pin of torch in a text."""
    found = re.search(r"torch==\S+ torchvision==[0-9.]+", text)
    assert found is not None, text
    return [Requirement(word) for word in found[0].split()]


def test_every_package_that_is_asked_for_has_its_version() -> None:
    """One that the project takes; torch's in the recipe, all others in the file."""
    pins = PINS | {each.name: str(each.specifier).removeprefix("==") for each in torch(RECIPE)}
    for each in TOOL.asked((ROOT / "pyproject.toml").read_text(encoding="utf-8")):
        assert each.specifier.contains(pins[canonicalize_name(each.name)]), each


def test_so_has_what_they_need() -> None:
    """As far as the same versions are installed here, which say what they need."""
    for name in PINS:
        try:
            same = version(name) == PINS[name]
        except PackageNotFoundError:
            continue
        for line in (requires(name) or ()) if same else ():
            more = Requirement(line)
            if TOOL.wanted(more, ()):
                assert more.specifier.contains(PINS[canonicalize_name(more.name)], prereleases=True), f"{name} needs {line}"


def test_it_is_what_its_tool_makes() -> None:
    """Sorted names with a version each; torch's family is the recipe's, for it differs with the index that it comes from."""
    names = list(PINS)
    assert LINES[0] == TOOL.HEAD.strip() and names == sorted(names) == [canonicalize_name(name) for name in names]
    assert not [name for name in names if TOOL.TORCHS.match(name)]
    made = TOOL.needed([Requirement("torchvision"), Requirement("psycopg[binary]")])
    assert {"numpy", "sympy", "psycopg", "psycopg-binary"} <= set(made) and not [name for name in made if TOOL.TORCHS.match(name)]


def test_their_files_are_known_by_hash() -> None:
    """The locked file has the same packages in the same versions, each with the hashes of its files."""
    entries = re.findall(r"^(\S+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", LOCKED, flags=re.MULTILINE)
    assert {canonicalize_name(name): version for name, version, _ in entries} == PINS, "see docs/deploying.md#images"
    assert LOCKED.count("==") == len(entries)


def test_the_recipe_goes_by_it() -> None:
    """Nothing is installed in whichever version is the newest, and nothing but torch's family without a hash."""
    installs = [line.strip() for line in re.findall(r"pip install ([^&\n]+)", RECIPE)]
    assert installs == [
        "--no-deps --require-hashes --requirement locked.txt",
        '--no-deps ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} $TORCH',
        "--constraint constraints.txt $TORCH",
        "--no-deps .",
    ]
    assert "pip check" in RECIPE, "what the project asks for is there"
    kept = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {"!deploy/constraints.txt", "!deploy/locked.txt"} <= set(kept)


def test_torch_is_pinned_alike() -> None:
    """In the recipe, in the compose file and for GPUs."""
    base = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["x-coordinator-image"]["build"]["args"][
        "TORCH"
    ]
    gpu = yaml.safe_load((ROOT / "deploy" / "gpu.yml").read_text(encoding="utf-8"))["services"]["site-1"]["build"]["args"][
        "TORCH"
    ]
    assert base.removeprefix("${TORCH:-").removesuffix("}") == gpu == " ".join(map(str, torch(RECIPE)))
