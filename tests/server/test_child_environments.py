"""What the processes that compute find in their environment: of the secrets of the process that starts them, none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tideline.core.asked.computing import GPU_MEMORY
from tideline.core.run import Role, RunId
from tideline_agent.pool import TrainerPool
from tideline_agent.settings import AgentSettings
from tideline_server.planner import ProcessPlanner
from tideline_server.worker import ProcessCompute

pytestmark = pytest.mark.usefixtures("as_users_do", "secrets")
METHODS = "tideline.algorithms:METHODS"
DATABASE = {"DATABASE_URL": "postgresql://tide:pass@db.internal/tide", "PGPASSWORD": "pass", "PGHOST": "db.internal"}
OWN = {
    "TIDELINE_ADMIN_KEY": "admin",
    "TIDELINE_ADMIN_KEY_FILE": "/etc/admin.key",
    "TIDELINE_API_KEY": "key",
    "TIDELINE_DATABASE": "postgresql://tide:pass@db.internal/tide",
    "TIDELINE_OIDC_CLIENT_SECRET": "secret",
    "TIDELINE_REDIS": "redis://:pass@cache.internal",
    "TIDELINE_TOKEN": "token",
}
BUCKET = {"AWS_SECRET_ACCESS_KEY": "bucket"}


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a coordinator or an agent may have in its environment."""
    for name, value in (OWN | DATABASE | BUCKET).items():
        monkeypatch.setenv(name, value)


def seen(pid: int | None) -> set[str]:
    """Which of these variables a process has."""
    assert pid is not None
    environment = psutil.Process(pid).environ()
    assert environment["PATH"]
    return {name for name in OWN | DATABASE | BUCKET if name in environment}


def test_the_numeric_worker_has_the_keys_of_the_parts_alone(tmp_path: Path) -> None:
    """It opens the store of parts, and no database."""
    compute = ProcessCompute((str(tmp_path), tmp_path, 1.0), METHODS)
    compute.start()
    try:
        assert seen(compute.pid) == set(BUCKET)
    finally:
        compute.end()


def test_the_process_of_a_plan_has_none() -> None:
    """It opens nothing."""
    with ProcessPlanner()._place() as child:
        child.start()
        assert seen(child.pid) == set()


@pytest.mark.parametrize(("python", "left"), [(False, set(BUCKET)), (True, set(BUCKET) | set(DATABASE))])
def test_a_trainer_has_what_the_owners_function_may_need(tmp_path: Path, python: bool, left: set[str]) -> None:
    """A function of the owner's may open the site's own database; the agent's token is for nobody."""
    pool = TrainerPool(tmp_path, Path("python:rows:rows") if python else tmp_path, METHODS, "cpu")
    trainer = pool._take(RunId("one"))
    try:
        trainer.child.start()
        assert seen(trainer.child.pid) == left
    finally:
        pool.close()


def test_a_trainer_knows_its_share_of_a_gpu(tmp_path: Path) -> None:
    """As many trainers as runs are served at once have it all, unless the owner says how much each may take."""
    settings = AgentSettings("", tmp_path, (Role.SOURCE,), "anna", parallel=4)
    assert settings.memory_share == 0.25 and replace(settings, gpu_memory=0.5).memory_share == 0.5
    pool = TrainerPool(tmp_path, tmp_path, METHODS, "cpu", environment={GPU_MEMORY: repr(settings.memory_share)})
    trainer = pool._take(RunId("one"))
    try:
        trainer.child.start()
        assert psutil.Process(trainer.child.pid).environ()[GPU_MEMORY] == "0.25"
    finally:
        pool.close()
