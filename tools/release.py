"""Make a release: `make release VERSION=0.2.0`, or with ARGS=--dry-run only say what that would do.

Two commits. The first has the version, the changelog's section and the formats as this version writes them; the wheel is built
from its files, twice, to the same bytes. The second has the record in docs/releases.md, which names the first. Nothing is pushed
and no tag is made. What fails leaves the tree as it was, and says what to do.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools.records import PAGE, VERSION, added, check_newer, numbers, python_path, read_records, record_of, spoken_in
from tools.wheels import ROOT, Failed, build_twice, builder, folder, git, unpack

CHANGELOG, CODE, CHART = "CHANGELOG.md", "shared/tideline/__init__.py", "deploy/helm/tideline/Chart.yaml"
FORMATS = "tests/formats/released"
UNRELEASED = "## Unreleased"
EMPTY = f"{UNRELEASED}\n\nNothing yet.\n"
Edit = Callable[[str, str, str, str], str]  # text, version before, version, date


@dataclass(frozen=True)
class Asked:
    """What is to be released, in which repository. now: seconds since 1970, which stand in the commits and in the wheel."""

    version: str
    root: Path
    now: int

    @property
    def date(self) -> str:
        """The day, in UTC."""
        return time.strftime("%Y-%m-%d", time.gmtime(self.now))

    def text(self, name: str) -> str:
        """A file of the repository. Raises Failed."""
        try:
            return (self.root / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise Failed(f"There is no {name} in {self.root}", "Run this in a checkout of Tideline") from None


def new_section(text: str, before: str, version: str, date: str) -> str:
    """The changelog, in which what was unreleased stands below the version, and nothing is unreleased."""
    return text.replace(UNRELEASED, f"{EMPTY}\n## {version} - {date}", 1)


def code_version(text: str, before: str, version: str, date: str) -> str:
    """The package's version."""
    return re.sub(r'^__version__ = ".*"$', f'__version__ = "{version}"', text, count=1, flags=re.MULTILINE)


def chart_version(text: str, before: str, version: str, date: str) -> str:
    """The chart's version, and that of what it installs."""
    own = re.sub(r"^version: .*$", f"version: {version}", text, count=1, flags=re.MULTILINE)
    return re.sub(r"^appVersion: .*$", f'appVersion: "{version}"', own, count=1, flags=re.MULTILINE)


def image_tags(text: str, before: str, version: str, date: str) -> str:
    """A page whose commands name images of the version before."""
    return re.sub(rf"(?<=:){re.escape(before)}(?![\d.])", version, text)


EDITS: Sequence[tuple[str, Edit]] = (
    (CODE, code_version),
    (CHANGELOG, new_section),
    (CHART, chart_version),
    ("docs/kubernetes.md", image_tags),
    ("docs/simulation.md", image_tags),
)


def unreleased(changelog: str) -> str:
    """What stands in the changelog below its first heading. Raises Failed where that is missing or empty."""
    if changelog.count(f"{UNRELEASED}\n") != 1:
        raise Failed(f'{CHANGELOG} has not exactly one heading "{UNRELEASED}"', "Write it above what has changed")
    body = changelog.partition(f"{UNRELEASED}\n")[2].partition("\n## ")[0].strip()
    if not re.search(r"^- \S", body, flags=re.MULTILINE):
        todo = f'Write what has changed for users below "{UNRELEASED}", a line that begins with "- " for each'
        raise Failed(f"{CHANGELOG} says of nothing that it is unreleased", todo)
    return body


def current(asked: Asked) -> str:
    """The version in the tree. Raises Failed."""
    found = re.search(rf'^__version__ = "({VERSION.pattern})"$', asked.text(CODE), flags=re.MULTILINE)
    if found is None:
        raise Failed(f'{CODE} has no line __version__ = "..."', "Restore that line")
    return found[1]


def check(asked: Asked) -> str:
    """All that can be known before anything is changed; the version before. Raises Failed."""
    numbers(asked.version)
    before = current(asked)
    if changed := git(asked.root, "status", "--porcelain"):
        first = changed.splitlines()[0].strip()
        raise Failed(f"The working tree has changes that no commit has, such as: {first}", "Commit them, or take them back")
    check_newer(asked.version, before, read_records(asked.text(PAGE)))
    if git(asked.root, "tag", "--list", f"v{asked.version}"):
        raise Failed(f"There is a tag v{asked.version}", "Choose a newer version: what was tagged may be in use")
    if any(path.is_file() for path in (asked.root / FORMATS / asked.version).rglob("*")):  # git leaves empty folders behind
        raise Failed(f"{FORMATS}/{asked.version} is there", f"Choose a newer version, or delete what no release has: {PAGE}")
    unreleased(asked.text(CHANGELOG))
    git(asked.root, "var", "GIT_COMMITTER_IDENT")
    builder()
    return before


def edited(asked: Asked, before: str) -> list[tuple[str, str]]:
    """The files that change, with their new texts. Raises Failed where one has not what it should."""
    made = [(name, edit(asked.text(name), before, asked.version, asked.date)) for name, edit in EDITS]
    return [(name, text) for name, text in made if text != asked.text(name)]


@contextmanager
def undone(root: Path, start: str) -> Iterator[None]:
    """What fails in the block leaves the repository as it was at the start; it was clean."""
    try:
        yield
    except BaseException:
        git(root, "reset", "--quiet", "--hard", start)
        git(root, "clean", "--quiet", "--force", "-d", "--", FORMATS)
        raise


def write_formats(asked: Asked) -> None:
    """The files of every format, as this version writes them. Raises Failed."""
    if not (asked.root / "tests/formats/__main__.py").exists():
        return  # a repository without them, which is one of the tests
    command = [sys.executable, "-m", "tests.formats", str(asked.root / FORMATS / asked.version)]
    there = os.environ | {"PYTHONPATH": python_path(asked.root)}
    done = subprocess.run(command, cwd=asked.root, env=there, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(
            f"The formats cannot be written down: {(done.stderr or done.stdout).strip()[-800:]}", "Correct tests/formats"
        )


def commit(asked: Asked, message: str) -> str:
    """Commit all that has changed, at the time of the release; the commit."""
    at = f"@{asked.now} +0000"
    git(asked.root, "commit", "--quiet", "--all", "--message", message, GIT_AUTHOR_DATE=at, GIT_COMMITTER_DATE=at)
    return git(asked.root, "rev-parse", "HEAD")


def release(asked: Asked, say: Callable[[str], object]) -> None:
    """Everything. Raises Failed, and then nothing has changed."""
    before = check(asked)
    changes = edited(asked, before)
    with undone(asked.root, git(asked.root, "rev-parse", "HEAD")):
        for name, text in changes:
            (asked.root / name).write_text(text, encoding="utf-8")
        write_formats(asked)
        git(asked.root, "add", "--all")
        wheel = build_twice(asked.root, git(asked.root, "write-tree"), asked.root / "dist", asked.now)
        made = commit(asked, f"Release {asked.version}")
        with folder() as source:
            record = record_of(asked.version, made, asked.date, wheel, spoken_in(unpack(asked.root, made, source)))
        (asked.root / PAGE).write_text(added(asked.text(PAGE), record), encoding="utf-8")
        commit(asked, f"The record of {asked.version}")
    say(f"Made {asked.version} of commit {made}: dist/{wheel.path.name}, SHA-256 {wheel.sha256}")
    say("What to do next:")
    say("    .ci/run                                    # the two commits, as every change")
    say(f"    git tag --annotate v{asked.version} {made[:12]} --message 'Tideline {asked.version}'")
    say(f"    git push origin HEAD v{asked.version}")
    say(
        f"Then publish dist/{wheel.path.name} where your users install from. To take it back before that: git reset --hard HEAD~2"
    )


def plan(asked: Asked, say: Callable[[str], object]) -> None:
    """What would be done; nothing changes. Raises Failed as the release would."""
    before = check(asked)
    lines = len(unreleased(asked.text(CHANGELOG)).splitlines())
    say(f"Would release {asked.version}, after {before}, dated {asked.date}:")
    for name, _ in edited(asked, before):
        said = (
            f"{lines} lines become the section of {asked.version}" if name == CHANGELOG else f"{before} becomes {asked.version}"
        )
        say(f"    {name}: {said}")
    say(f"    {FORMATS}/{asked.version}: the files of every format")
    say(f"    commit, build dist/tideline-{asked.version}-py3-none-any.whl twice with {builder()} and compare")
    say(f"    {PAGE}: the record, in a second commit")


def main(words: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """The command; 2 for what is refused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", help="three numbers, such as 0.2.0")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and change nothing")
    given = parser.parse_args(words)

    def say(line: str) -> None:
        sys.stdout.write(f"{line}\n")

    try:
        (plan if given.dry_run else release)(Asked(given.version, root, int(time.time())), say)
    except Failed as failure:
        sys.stderr.write(f"Error: {failure.what}\nWhat to do: {failure.todo}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
