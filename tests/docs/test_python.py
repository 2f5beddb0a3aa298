"""docs/python.md and the notebook run as they are printed; so do the functions of docs/data.md that give data."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tideline
from tests.docs.manual import DOCS, ROOT, blocks, section, text_of

PAGE, DATA = DOCS / "python.md", DOCS / "data.md"
NOTEBOOK = DOCS / "notebooks" / "first-federation.ipynb"
NEEDED = {"huggingface.py": "datasets", "vision.py": "torchvision", "database.py": "sqlite3"}


def ended(code: str, folder: Path) -> str:
    """What a program prints, run in a folder of its own."""
    (folder / "program.py").write_text(code)
    done = run("tests.docs.program", "program.py", folder=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """`python -m WORDS` in a folder."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "HOME": str(folder)}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=240, check=False)


def test_the_page_runs(tmp_path: Path) -> None:
    """Its blocks, one after the other."""
    said = ended("\n".join(blocks(PAGE, "python")), tmp_path)
    assert said.startswith("completed ") and "config.roundz is not a known setting" in said
    assert (tmp_path / "accuracy.png").stat().st_size > 1000


def test_the_page_names_what_is_public() -> None:
    """All of it."""
    assert [name for name in tideline.__all__ if f"`{name}`" not in text_of(PAGE) and name != "__version__"] == []


def cells() -> list[str]:
    """The notebook's code, cell by cell."""
    content = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert (content["nbformat"], content["nbformat_minor"] >= 0) == (4, True)
    return ["".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == "code"]


@pytest.mark.nightly(job="services")
def test_the_notebook_runs_and_shows_an_adapted_model_that_is_better(tmp_path: Path) -> None:
    """Its cells, in order, without jupyter."""
    said = ended("\n".join(cells()), tmp_path)
    before, after = (float(each) for each in re.search(r"not adapted ([\d.]+) %, adapted ([\d.]+) %", said).groups())  # type: ignore[union-attr]
    assert after > before + 10, said


def functions() -> dict[str, str]:
    """The functions of the page on data, by the file that their first line names."""
    found = {}
    for block in re.findall(r"^```python\n(.*?)^```", section(DATA, "Data from Python"), flags=re.MULTILINE | re.DOTALL):
        found[re.match(r"# (\w+\.py)\n", block)[1]] = block  # type: ignore[index]
    return found


@pytest.mark.parametrize("name", NEEDED)
def test_the_functions_of_the_page_on_data_give_data(name: str, tmp_path: Path) -> None:
    """Checked as an owner checks them; those of packages that are not here are only compiled."""
    assert set(functions()) == set(NEEDED)
    code = functions()[name]
    ast.parse(code)
    if name != "database.py":
        if not importlib.util.find_spec(NEEDED[name]) or name == "huggingface.py":
            pytest.skip(f"{NEEDED[name]} is not here, or would download")
        images(tmp_path)
    else:
        ended(TABLE, tmp_path)
    (tmp_path / name).write_text(code)
    done = run("tideline", "data", "check", f"python:{name.removesuffix('.py')}:site", folder=tmp_path)
    assert done.returncode == 0 and "An agent can use these data." in done.stdout, done.stdout + done.stderr


TABLE = """
import random, sqlite3
with sqlite3.connect("ward.db") as db:
    db.execute("CREATE TABLE visits (age REAL, pressure REAL, ill INTEGER)")
    db.executemany("INSERT INTO visits VALUES (?, ?, ?)", [(random.random(), random.random(), i % 2) for i in range(40)])
"""


def images(folder: Path) -> None:
    """A folder of images for each class."""
    from PIL import Image

    for i in range(12):
        place = folder / "photos" / ("cat" if i % 2 else "dog")
        place.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20 + i, 20), (20 * i, 10, 10)).save(place / f"{i}.png")
