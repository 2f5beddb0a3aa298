"""The planted faults fit today's code, and what plants them can tell a fault that is caught from one that is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.manual import DOCS, section, tables
from tests.planted.__main__ import arguments, line
from tests.planted.faults import PATCHES, PRODUCT, ROOT, Fault, chosen, read_faults
from tests.planted.tiers import TIERS, Caught, NotRun, command, failure_in, first_failure, hunt
from tests.planted.trees import DoesNotApply, applied, environment, listed, plant

FAULTS = read_faults()
PASSES = "def test_one():\n    assert True\n"
FAILS = PASSES + "def test_two(subtests):\n    with subtests.test(1):\n        assert False\n"


def test_every_row_has_a_patch_and_every_patch_a_row() -> None:
    """And a name says what it does: words, and no numbers."""
    assert sorted(FAULTS) == sorted(path.stem for path in PATCHES.iterdir())
    assert len(FAULTS) >= 10 and all(name.replace("-", "").isalpha() for name in FAULTS)


def test_a_row_has_a_patch_of_todays_product(subtests: pytest.Subtests) -> None:
    """It applies, where lines above it have moved too; it changes files of the product alone. The row says in a sentence what
    happens, and names a folder or file of tests that should notice.
    """
    for name, fault in FAULTS.items():
        with subtests.test(name):
            assert applied(fault, ROOT, "--check") == ""
            assert fault.files and all(file.startswith(PRODUCT) and (ROOT / file).is_file() for file in fault.files)
            assert fault.harm.endswith(".") and 20 < len(fault.harm) < 150
            assert fault.expected.startswith("tests/") and (ROOT / fault.expected).exists()


def test_every_layer_has_a_fault() -> None:
    """Numbers, methods, learning, archive, engine, coordinator and agent."""
    changed = " ".join(name for fault in FAULTS.values() for name in fault.files)
    layers = [f"shared/tideline/{name}/" for name in ("numerics", "algorithms", "learning", "archive", "engine", "core")]
    assert [layer for layer in (*layers, *PRODUCT[1:]) if layer not in changed] == []


def test_the_manual_has_every_fault() -> None:
    """docs/testing.md lists them in the order of the table, with what they do to a user."""
    rows = tables(section(DOCS / "testing.md", "Planted faults"))[0]
    assert [(row[0].strip("`"), row[1]) for row in rows] == [(fault.name, fault.harm) for fault in FAULTS.values()]


def test_a_patch_that_does_not_apply_says_so(tmp_path: Path) -> None:
    """With its own name, and git's words."""
    fault = next(iter(FAULTS.values()))
    with pytest.raises(DoesNotApply, match=rf"(?s)patches/{fault.name}.patch no longer applies.*{fault.files[0]}"):
        plant(fault, tmp_path)


def test_a_copy_has_the_product_and_its_tests() -> None:
    """Everything that is tracked, and nothing that git ignores."""
    names = set(listed())
    assert {"pyproject.toml", "tests/conftest.py", "shared/tideline/__init__.py"} <= names
    assert not any(name.startswith((".venv/", ".git/")) or "__pycache__" in name for name in names)


def test_a_copys_own_packages_come_first(tmp_path: Path) -> None:
    """Not those that are installed, in which nothing is planted."""
    assert environment(tmp_path)["PYTHONPATH"].startswith(str(tmp_path / "shared"))


def small(folder: Path, text: str) -> Path:
    """A tree of one file of tests."""
    (folder / "tests").mkdir()
    (folder / "tests" / "test_small.py").write_text(text)
    return folder


def test_the_first_test_that_fails_is_named(tmp_path: Path) -> None:
    """With its tier, and later tiers are not tried."""
    found = hunt(Fault("some", "", "tests/test_small.py"), small(tmp_path, FAILS), TIERS, 0)
    assert (found.fault, found.tier, found.test) == ("some", "expected", "tests/test_small.py::test_two")


def test_a_fault_that_nothing_notices(tmp_path: Path) -> None:
    """Its row says so."""
    found = hunt(Fault("some", "", "tests/test_small.py"), small(tmp_path, PASSES), TIERS[:1], 0)
    assert (found.tier, found.test) == ("", "") and "**not caught**" in line(found)


def test_tests_that_cannot_be_run_tell_nothing(tmp_path: Path) -> None:
    """That is no fault that was caught."""
    with pytest.raises(NotRun, match="test_nowhere"):
        first_failure("expected", small(tmp_path, PASSES), ["tests/test_nowhere.py"], 0)


SAID = (
    ("quick", "FAILED tests/a.py::test_b[1 - 2] - assert 1 == 2\nFAILED tests/a.py::test_c\n", "tests/a.py::test_b[1"),
    ("quick", "FAILED tests/a.py::test_c\n1 failed, 2 passed in 3 s", "tests/a.py::test_c"),
    ("failpoints", "ok        agent rename a before\nFAILED nobody died there  agent rename b after\n", "nobody died there  "),
    ("chaos", "seed  30  fada  5f0c  12.0 s  Redis flushed\n5f0c: the run ends as in peace: failed: why\n", "5f0c: the run"),
    ("chaos", "seed  30  fada  5f0c  12.0 s  Redis flushed\n2 runs: every one", ""),
)


def test_what_a_tier_says() -> None:
    """The first failure is found in its words."""
    for tier, words, first in SAID:
        failure = failure_in(tier, words)
        assert failure.startswith(first) and bool(failure) == bool(first), words


def test_no_tier_plants_in_what_is_planted() -> None:
    """These tests fail in a copy with a fault, whatever the fault is."""
    assert all("--ignore=tests/planted" in command(tier, ["tests"], 2) for tier in TIERS[:2])


def test_names_are_held_to_the_table() -> None:
    """All without any; a wrong one is told."""
    assert [fault.name for fault in chosen([])] == list(FAULTS)
    assert [fault.name for fault in chosen(["viewer-starts-runs"])] == ["viewer-starts-runs"]
    with pytest.raises(LookupError, match="There is no fault nothing"):
        chosen(["nothing"])


def test_the_command_line() -> None:
    """Some faults, as far as some tier, with some processes."""
    asked = arguments(["lease-is-not-fenced", "--to", "quick", "--jobs", "4"])
    assert (asked.names, asked.to, asked.jobs) == (["lease-is-not-fenced"], "quick", 4)
    assert line(Caught("a", "quick", "tests/b.py::c", 4.4)) == "| `a` | quick | `tests/b.py::c` | 4 |"
