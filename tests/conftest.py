"""What tests of several folders use."""

from __future__ import annotations

import gc
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from tests.budgets import QUICK
from tests.forking import Forked, Started
from tests.logs import plain_log
from tests.sharing import Together, in_order, strangers
from tests.tiers import QUICK_TIER, is_of_the_night, mark_tiers

if TYPE_CHECKING:
    from tests.s3 import Server

if "PYTEST_XDIST_WORKER" in os.environ:  # workers share the cores: threads of torch beside each other wait more than they work
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes that tests start, too
    subprocess.Popen = Forked  # type: ignore[misc]
plain_log()
settings.load_profile(QUICK)  # --hypothesis-profile=deep takes its place, before a test is collected

# Hundreds of processes are started: what the first compiles is there for the others, whatever the shell's own wish is.
# Ray reads once in a process whether it asks for a token, whichever test needs it first.
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes long goes first. Raises for a module that uses a shared fixture and does not say so."""
    mark_tiers(items, config.rootpath)
    if wrong := strangers(items):
        raise pytest.UsageError(f"tests/sharing.py has to name {', '.join(sorted(wrong))} beside the fixture that it uses")
    in_order(items)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Load no module of the night for the quick tier as a whole; whoever names a file gets all of it."""
    whole = config.option.markexpr == QUICK_TIER and [Path(arg).name for arg in config.args] == ["tests"]
    return True if whole and is_of_the_night(collection_path, config.rootpath) else None


def pytest_collection_finish() -> None:
    """No garbage collection looks again at torch and at thousands of tests: that took a tenth of the suite's time."""
    gc.freeze()


def pytest_unconfigure() -> None:
    """What was frozen is let go in the end, or libraries report it as leaked."""
    gc.unfreeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Beside `--dist loadfile`: modules that share what is started once stay together."""
    return Together(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> Iterator[None]:
    """A suite that runs in the background ignores Ctrl-C, and the processes that it starts would inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def as_users_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes are started, and none is forked: for tests of what a start loads, costs or calls itself."""
    monkeypatch.setattr(subprocess, "Popen", Started)


@pytest.fixture(scope="session")
def store_of_objects() -> Iterator[Server]:
    """An S3 server for all tests of the session."""
    from tests.s3 import Server

    made = Server()
    yield made
    made.stop()


@pytest.fixture
def s3(store_of_objects: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """The S3 server, and an environment that leads to it."""
    for name, value in store_of_objects.environment.items():
        monkeypatch.setenv(name, value)
    yield store_of_objects
    store_of_objects.instead = lambda asked: None


@pytest.fixture
def bucket(s3: Server) -> str:
    """The URL of an empty place in a bucket of its own."""
    return f"s3://{s3.bucket()}/tide/parts"
