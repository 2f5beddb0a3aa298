"""Real digits for three sites, and how the run on them ends that nobody disturbs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import yaml

from tests.acceptance.runbook.book import EXPERIMENT, LIMIT_SECONDS, ROSTER, Book, opened
from tests.acceptance.test_restore import needed
from tests.services import Postgres

SAMPLES = {"hospital-a": ("mnist", "1/2"), "hospital-b": ("mnist", "2/2"), "hospital-c": ("usps", "1/1")}


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of digits for each site."""
    folder = tmp_path_factory.mktemp("digits")
    for name, (domain, part) in SAMPLES.items():
        command = [sys.executable, "-m", "tideline", "data", "sample", str(folder / name), "--domain", domain, "--part", part]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=LIMIT_SECONDS)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def undisturbed(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The state digest of the run, in peace."""
    folder = tmp_path_factory.mktemp("peace")
    sites = {name: {"role": role, "folder": str(digits / name)} for name, role in ROSTER.items()}
    whole = {key: value for key, value in EXPERIMENT.items() if key != "roster"} | {"data": sites}
    (folder / "digits.yaml").write_text(yaml.safe_dump(whole))
    command = [sys.executable, "-m", "tideline", "simulate", str(folder / "digits.yaml"), "--out", str(folder / "out"), "--json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert done.returncode == 0, done.stderr
    return str(json.loads((folder / "out" / "result.json").read_text())["state_digest"])


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A Postgres of these tests' own, with the page's role. Whoever uses its database does so alone, one after the other."""
    needed()
    made = Postgres(tmp_path_factory.mktemp("runbook"))
    with psycopg.connect(made.url, autocommit=True) as connection:
        connection.execute("CREATE ROLE tideline SUPERUSER LOGIN PASSWORD 'the-old-one'")
    yield made
    made.kill()


@pytest.fixture
def emptied(postgres: Postgres) -> Postgres:
    where = ("--host", "127.0.0.1", "--port", str(postgres.port), "--username", "postgres")
    for name in ("tideline", "restored"):
        postgres.do("dropdb", *where, "--force", "--if-exists", name)
    postgres.do("createdb", *where, "tideline")
    return postgres


@pytest.fixture
def book(tmp_path: Path, digits: Path) -> Iterator[Book]:
    """The page, over a federation that is still to be started."""
    with opened(tmp_path, digits) as made:
        yield made
