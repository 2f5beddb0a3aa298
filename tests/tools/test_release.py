"""`make release`: what it refuses, what it would do, and that what it makes can be made again to the same bytes."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from tideline_server.store.database.revisions import newest
from tools import records, release, wheels
from tools.records import PAGE, Record, Spoken, added, read_records, written
from tools.release import CHANGELOG, CHART, CODE, Asked, main, unreleased
from tools.wheels import ROOT, Failed, build_twice, digest, git, working_tree

SPOKEN = Spoken(protocol=2, api=2, schema="0005", archive=1, model=5, vault=1, ledger=1, audit=1)
OLD = Record(
    version="0.1.0", date="2026-01-02", commit="ab" * 20, spoken=SPOKEN, wheel="w.whl", sha256="cd" * 32, builder="hatchling 1"
)
FILES = {
    CODE: '__version__ = "0.1.0"\n',
    CHANGELOG: "# Changelog\n\n## Unreleased\n\n### Added\n- A thing.\n",
    CHART: 'name: tideline\nversion: 0.1.0\nappVersion: "0.1.0"\nkubeVersion: ">=1.25.0-0"\n',
    "docs/kubernetes.md": "docker build -t example/agent:0.1.0 . and :0.1.0-cuda, not :10.1.0 nor :0.1.01\n",
    "docs/simulation.md": "image: ray:0.1.0\n",
    PAGE: added("# Releases\n\nWords.\n", OLD),
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A small one, with what a release changes."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    begin(tmp_path)
    return tmp_path


def begin(folder: Path) -> None:
    """Make a repository of a folder."""
    git(folder, "init", "--quiet")
    for name, value in (("user.name", "Tester"), ("user.email", "tester@example.org"), ("commit.gpgsign", "false")):
        git(folder, "config", name, value)
    save(folder, "All")


def save(folder: Path, message: str) -> None:
    """Commit everything."""
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", message)


def refused(root: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What the command says where it refuses; nothing has changed then."""
    before = git(root, "rev-parse", "HEAD"), git(root, "status", "--porcelain")
    assert main(words, root) == 2
    assert (git(root, "rev-parse", "HEAD"), git(root, "status", "--porcelain")) == before
    out, err = capsys.readouterr()
    assert not out and re.fullmatch(r"Error: .+\nWhat to do: .+\n", err), err
    return err


VERSIONS = {
    "0.2": "'0.2' is no version",
    "v0.2.0": "'v0.2.0' is no version",
    "0.02.0": "is no version",
    "0.2.0rc1": "is no version",
    "0.1.0": "0.1.0 is not newer than 0.1.0, which docs/releases.md names",
    "0.0.9": "0.0.9 is not newer than 0.1.0",
}


def test_versions_that_are_none_or_not_newer(
    repository: Path, capsys: pytest.CaptureFixture[str], subtests: pytest.Subtests
) -> None:
    """Refused before anything is done, by a dry run too."""
    for more, (version, words) in itertools.product(((), ("--dry-run",)), VERSIONS.items()):
        with subtests.test(f"{version} {more}"):
            assert words in refused(repository, capsys, version, *more)


def test_a_tree_with_changes(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Changed, or beside what git tracks: the first of them is named."""
    (repository / "left").write_text("over")
    assert "such as: ?? left" in refused(repository, capsys, "0.2.0")
    (repository / "left").unlink()
    (repository / CODE).write_text("changed")
    assert f"{CODE} has no line __version__" in refused(repository, capsys, "0.2.0")
    (repository / CODE).write_text(FILES[CODE] + "\n")
    assert f"such as: M {CODE}" in refused(repository, capsys, "0.2.0")


@pytest.mark.parametrize(
    ("changelog", "what"),
    [
        ("# Changelog\n\n## Unreleased\n\nNothing yet.\n\n## 0.1.0\n- Old.\n", "says of nothing that it is unreleased"),
        ("# Changelog\n\n## 0.1.0\n- Old.\n", 'has not exactly one heading "## Unreleased"'),
    ],
)
def test_a_changelog_with_nothing_new(repository: Path, capsys: pytest.CaptureFixture[str], changelog: str, what: str) -> None:
    """Nothing is released that users are not told of."""
    (repository / CHANGELOG).write_text(changelog)
    save(repository, "Another changelog")
    assert what in refused(repository, capsys, "0.2.0")


def test_a_version_that_was_tagged(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Somebody may have it."""
    git(repository, "tag", "v0.2.0")
    assert "There is a tag v0.2.0" in refused(repository, capsys, "0.2.0")


def test_a_page_that_cannot_be_read(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No record is guessed."""
    (repository / PAGE).write_text(FILES[PAGE].replace("ledger = 1", "ledgers = 1"))
    save(repository, "Spoilt")
    assert "has a record that cannot be read" in refused(repository, capsys, "0.2.0")


def test_a_wheel_that_cannot_be_built(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """This repository has no pyproject.toml: what had been changed until then is taken back."""
    assert "The wheel cannot be built" in refused(repository, capsys, "0.2.0")
    assert (repository / CODE).read_text() == FILES[CODE]


def test_without_the_builder(repository: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It says how to get it."""
    monkeypatch.setattr(wheels, "BUILDER", "no-such-builder")
    assert "no-such-builder is not installed" in refused(repository, capsys, "0.2.0", "--dry-run")


def test_a_dry_run_changes_nothing(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It names each file, and what becomes of it."""
    before = git(repository, "rev-parse", "HEAD")
    assert main(("0.2.0", "--dry-run"), repository) == 0
    out = capsys.readouterr().out
    assert "Would release 0.2.0, after 0.1.0" in out and "CHANGELOG.md: 2 lines become the section of 0.2.0" in out
    assert all(name in out for name in FILES)
    assert git(repository, "rev-parse", "HEAD") == before and not git(repository, "status", "--porcelain")


def test_the_edits(repository: Path) -> None:
    """Versions where they stand, and nothing that only looks like one."""
    made = dict(release.edited(Asked("0.2.0", repository, 1798000000), "0.1.0"))
    assert made[CODE] == '__version__ = "0.2.0"\n'
    assert made[CHART] == 'name: tideline\nversion: 0.2.0\nappVersion: "0.2.0"\nkubeVersion: ">=1.25.0-0"\n'
    assert made["docs/kubernetes.md"] == "docker build -t example/agent:0.2.0 . and :0.2.0-cuda, not :10.1.0 nor :0.1.01\n"
    assert made[CHANGELOG] == ("# Changelog\n\n## Unreleased\n\nNothing yet.\n\n## 0.2.0 - 2026-12-23\n\n### Added\n- A thing.\n")
    with pytest.raises(Failed, match="says of nothing"):
        unreleased(made[CHANGELOG])


def test_records_are_read_as_they_are_written() -> None:
    """The newest first."""
    new = Record(**{**vars(OLD), "version": "0.2.0", "spoken": Spoken(**{**vars(SPOKEN), "schema": "0006"})})
    page = added(FILES[PAGE], new)
    assert read_records(page) == [new, OLD] and page.startswith("# Releases\n\nWords.\n\n## 0.2.0\n")
    assert written(OLD) in page and added(added("# Releases\n", OLD), new).endswith("```\n")


def test_the_records_of_this_tree() -> None:
    """They can be read, newest first, and the newest is not newer than the code."""
    found = read_records((ROOT / PAGE).read_text(encoding="utf-8"))
    versions = [records.numbers(each.version) for each in found]
    assert versions == sorted(set(versions), reverse=True) and versions[0] <= records.numbers(release.current(Asked("", ROOT, 0)))
    assert all(re.fullmatch("[0-9a-f]{40}", each.commit) and re.fullmatch("[0-9a-f]{64}", each.sha256) for each in found)


def test_records_name_commits_of_this_history() -> None:
    """One that was squashed or rebased since is named by nothing, and cannot be built again."""
    for each in read_records((ROOT / PAGE).read_text(encoding="utf-8")):
        there = subprocess.run(["git", "cat-file", "-e", f"{each.commit}^{{commit}}"], cwd=ROOT, capture_output=True, check=False)
        if there.returncode:
            pytest.skip(f"NOT TESTED: the history here lacks {each.commit} of {each.version}")
        before = subprocess.run(["git", "merge-base", "--is-ancestor", each.commit, "HEAD"], cwd=ROOT, check=False)
        assert before.returncode == 0, f"{each.version} names {each.commit}, which is not in this history: make its record again"


def test_what_is_edited_is_there() -> None:
    """Each file of this tree has what a release would change."""
    asked = Asked("99.0.0", ROOT, int(time.time()))
    before = release.current(asked)
    assert all(edit(asked.text(name), before, "99.0.0", asked.date) != asked.text(name) for name, edit in release.EDITS)


@pytest.mark.nightly(job="services")
def test_a_whole_release(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a copy of this tree: two commits, a wheel of the version with all that git tracks of the packages, and its record."""
    builder()
    copy = working_tree(ROOT, tmp_path / "copy")
    (copy / CHANGELOG).write_text("# Changelog\n\n## Unreleased\n\n- Something.\n")
    begin(copy)
    start = git(copy, "rev-parse", "HEAD")
    done = subprocess.run(
        [sys.executable, "-m", "tools.release", "99.0.0"], cwd=copy, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "git tag --annotate v99.0.0" in done.stdout and "git push origin HEAD v99.0.0" in done.stdout
    first, second = git(copy, "log", "--format=%H", f"{start}..HEAD").splitlines()[::-1]
    record = read_records((copy / PAGE).read_text())[0]
    assert (record.version, record.commit) == ("99.0.0", first) and not git(copy, "status", "--porcelain")
    assert git(copy, "diff", "--name-only", first, second) == PAGE
    wheel = copy / "dist" / record.wheel
    assert record.wheel == "tideline-99.0.0-py3-none-any.whl" and digest(wheel) == record.sha256
    again = build_twice(copy, first, tmp_path / "again", int(git(copy, "log", "-1", "--format=%ct", first)))
    assert again.sha256 == record.sha256
    tracked = git(copy, "ls-files", *wheels.PACKAGES).splitlines()
    inside = set(zipfile.ZipFile(wheel).namelist())
    assert {name.partition("/")[2] for name in tracked} <= inside
    assert record.spoken.schema == newest()
    assert main(("99.0.0",), copy) == 2 and "is not newer" in capsys.readouterr().err


def builder() -> None:
    """Skip where the builder is not installed; in CI that is a failure, as it is in the dev group."""
    try:
        wheels.builder()
    except Failed as failure:
        pytest.skip(f"NOT TESTED: {failure.what}. {failure.todo}")
