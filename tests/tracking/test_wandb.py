"""A real wandb, offline: followers that are killed, logs that end anywhere, and what is not written into them."""

from __future__ import annotations

import getpass
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.world import Coordinator, tide
from tests.tracking.following import WITH_MODEL, follower, one
from tests.tracking.kinds import WandbKind, inspected
from tests.tracking.lives import CARD, DEAD, RUN, points
from tideline.client.http import Client
from tideline.core.errors import ConfigRefused, Refused, Unreachable
from tideline.tracking import to_wandb, wandb_logs
from tideline.tracking.pages import Card, Ending, ModelFile, Point

pytest.importorskip("wandb", reason="wandb is not installed here: pip install 'tideline[wandb]'")
POINTS = points(4)


@pytest.fixture
def kind(tmp_path: Path) -> Iterator[WandbKind]:
    """A folder, whose runs are ended behind the test."""
    made = WandbKind(tmp_path / "place")
    yield made
    made.tracker()


def lives(folder: Path, rounds: int, how: str, n: int = 0, **env: str) -> tuple[int, str]:
    """How a follower's life in a process ended, and what it said."""
    command = [sys.executable, "-m", "tests.tracking.lives", str(folder), str(rounds), how, str(n)]
    ended = subprocess.run(command, check=False, env=os.environ | env, capture_output=True, text=True)
    return ended.returncode, ended.stderr


def test_killed_between_its_calls(tmp_path: Path) -> None:
    """wandb's own process dies with a follower; the next one writes what is missing, and nothing twice."""
    n, died = 0, True
    while died:
        n += 1
        kind = WandbKind(tmp_path / str(n))
        first = lives(kind.folder, 3, "dying", n)
        assert first in ((DEAD, ""), (0, ""))
        died = first[0] == DEAD
        assert lives(kind.folder, 3, "over") == (0, "") and kind.tracker().written() == {RUN}
        read = kind.read()[RUN]
        assert read.points == {key: [(step, step / 8) for step in (1, 2, 3)] for key in ("accuracy", "accuracy/a")}, n
        assert read.status == "completed" and read.files == {"report.html", "model"}
    assert n > 7


def folders(kind: WandbKind) -> list[Path]:
    return wandb_logs.logs_of(kind.folder / "wandb", "*", "tideline")


def test_a_log_that_ends_anywhere(kind: WandbKind) -> None:
    """A kill, or a full disk, leaves half of a record: the next start writes the rest, and no number twice."""
    many = [Point(key, step, step / 8, 1000.0 + step) for step in range(1, 300) for key in ("accuracy/a", "accuracy")]
    page = kind.tracker().page(CARD)
    page.write(many, 0)
    kind.tracker()
    (log,) = folders(kind)
    content = log.read_bytes()
    assert len(content) > 2 * wandb_logs.BLOCK
    whole = {key: [(step, step / 8) for step in range(1, 300)] for key in ("accuracy/a", "accuracy")}
    assert kind.read()[RUN].points == whole
    for end in (0, 5, 7, 9, 500, 2000, wandb_logs.BLOCK - 3, wandb_logs.BLOCK + 3, 40_001, len(content) - 1, len(content)):
        cut = WandbKind(kind.folder.parent / f"cut-{end}")
        place = cut.folder / "wandb" / log.parent.name
        place.mkdir(parents=True)
        (place / log.name).write_bytes(content[:end])
        cut.tracker().page(CARD).write(many, 0)
        cut.tracker()
        standing = wandb_logs.standing_of(cut.folder / "wandb", RUN, "tideline")
        rows = [row for path in folders(cut) for row in rows_in(path)]
        for key in whole:
            assert [(row["round"], row[key]) for row in rows if key in row] == whole[key], end
        assert standing.last == {"accuracy": 299, "accuracy/a": 299} and [row["_step"] for row in rows] == list(range(299)), end


def rows_in(path: Path) -> list[dict[str, Any]]:
    """The numbers of a log, as followers read them."""
    return [wandb_logs.row_of(each.history) for each in wandb_logs.Log(path).more() if each.HasField("history")]


def test_the_reader_of_logs_reads_what_wandb_reads(kind: WandbKind) -> None:
    values = [0.1, -1e300, 5e-324, 12345678901234567, 0.0, 1 / 3, 2.0**53 + 2]
    kind.tracker().page(CARD).write([Point("loss", step, value, 1000.0) for step, value in enumerate(values, 1)], 0)
    kind.tracker()
    (log,) = folders(kind)
    rows = rows_in(log)
    assert [row["loss"] for row in rows] == values
    assert rows == [record["history"]["item"] for record in inspected(log) if record["type"] == "history"]


def test_names_that_are_wandbs_own(kind: WandbKind) -> None:
    """A metric of a method's is none of its steps, times and rounds; a site's hostile name is no other folder."""
    names = ("_step", "_timestamp", "_runtime", "_wandb", "round", "a.b/c d", "__proto__")
    run = "../..//x*[y]\n"
    card = Card(run=run, name="<b>\x1b[31m", created=1.0, tags={"tideline.run": run})
    page = kind.tracker().page(card)
    page.write([Point(name, step, step + 0.5, 7.0) for step in (1, 2) for name in names], 0)
    model = kind.folder / "m.bin"
    model.write_bytes(b"weights")
    page.attach(kind.folder, [ModelFile(model, "../../a/b \u202e" * 30, {})])
    page.close(Ending("completed", 9.0))
    found = kind.read()[run].points
    assert {*found} == {name if name.startswith("a") else f"metric.{name}" for name in names}
    assert all(of == [(1, 1.5), (2, 2.5)] for of in found.values()) and kind.tracker().written() == {run}
    assert {each.name for each in kind.folder.parent.iterdir()} == {"place"}
    assert not kind.tracker().page(Card(run="*", name="x", created=1.0)).over


def test_steps_may_go_back(kind: WandbKind) -> None:
    """Phases count their rounds from 1: wandb's own step goes on, the round is a number beside it."""
    page = kind.tracker().page(CARD)
    page.write([Point("train.loss", step, 1.0, 5.0) for step in (1, 2, 3)], 0)
    page.write([Point("adapt.loss", step, 2.0, 5.0) for step in (1, 2)], 0)
    kind.tracker()
    (log,) = folders(kind)
    assert [(row["_step"], row["round"], row["_timestamp"]) for row in rows_in(log)] == [
        (step, number, 5.0) for step, number in enumerate((1, 2, 3, 1, 2))
    ]
    (axis,) = [each["metric"] for each in inspected(log) if each.get("metric", {}).get("glob_name")]
    assert axis["glob_name"] == "*" and axis["step_metric"] == "round"


def test_nothing_of_the_machine_is_written(
    there: Coordinator, kind: WandbKind, monkeypatch: pytest.MonkeyPatch, client: Client, tmp_path: Path
) -> None:
    """Neither its name, its user, their home, code, packages, nor a key: in no record, and in no file that is sent."""
    home = tmp_path / "home-of-somebody"
    home.mkdir()
    secrets = {socket.gethostname(), "somebody-here", "home-of-somebody", "0123456789" * 4, "secret-argument"}
    monkeypatch.setattr("sys.argv", ["tideline", "--secret-argument"])
    for name, value in (("HOME", str(home)), ("USER", "somebody-here"), ("LOGNAME", "somebody-here")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("WANDB_API_KEY", "0123456789" * 4)
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert getpass.getuser() == "somebody-here"
    run = there.complete()
    assert not follower(client, kind.tracker(), WITH_MODEL).poll(one(run))
    (log,) = folders(kind)
    records = list(inspected(log))
    (about,) = [each["run"] for each in records if each["type"] == "run"]
    assert about["host"] == "tideline" and not {"git", "program", "settings"} & about.keys()
    kinds = {each["type"] for each in records}
    assert kinds == {"header", "run", "telemetry", "metric", "summary", "history", "config", "artifact", "exit"}
    chance = {name: "" for each in records for name in ("client_id", "sequence_client_id", "digest") if "artifact" in each}
    text = json.dumps([{**each, "artifact": each.get("artifact", {}) | chance} for each in records])
    assert [secret for secret in secrets if re.search(rf"(?<![\w-]){re.escape(secret)}(?![\w-])", text)] == []
    assert not [path for path in (log.parent / "files").rglob("*") if path.is_file()]


def test_crash_reports_and_statistics_are_off(kind: WandbKind) -> None:
    kind.tracker()
    assert os.environ["WANDB_ERROR_REPORTING"] == "false"
    from wandb.env import error_reporting_enabled

    assert not error_reporting_enabled()


def test_models_are_versions_with_their_lineage(there: Coordinator, client: Client, kind: WandbKind) -> None:
    """The metadata say where a model comes from; with --register all runs' models are versions of one collection."""
    run = there.complete(method="fedprox", reference={"method": "fedavg"})
    where = ("--to", "wandb", "--uri", str(kind.folder), "--register", "digits", "--home", there.home)
    told = tide("run", "track", run, *where)
    assert told.exit_code == 0, told.stderr
    models = {each["run_id"]: each for each in artifacts(kind) if each["type"] == "model"}
    assert models[run]["name"] == "digits" and models[f"{run}-ref"]["name"] == f"{run}-ref-model"
    lineage = json.loads(models[run]["metadata"])
    result = client.run(run)
    assert lineage["tideline.state_digest"] == result["state_digest"] and lineage["tideline.run"] == run
    assert "anna (32 rows)" in lineage["tideline.sites"] and lineage["tideline.contract"]
    (entry,) = models[run]["manifest"]["contents"]
    assert entry["path"] == "model/model.safetensors" and Path(entry["local_path"]).is_relative_to(kind.folder)
    assert Path(entry["local_path"]).stat().st_size == int(entry["size"])


def artifacts(kind: WandbKind) -> list[dict[str, Any]]:
    return [each["artifact"] for path in folders(kind) for each in inspected(path) if each["type"] == "artifact"]


def test_a_mode_that_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    with pytest.raises(ConfigRefused, match="WANDB_MODE is 'disabled'"):
        to_wandb.opened(str(tmp_path), None, "")


def test_a_folder_that_wandb_goes_around(kind: WandbKind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it cannot write it takes a folder for temporary files: that counts as not written."""
    page = kind.tracker().page(CARD)
    access = os.access
    monkeypatch.setattr("os.access", lambda path, *mode: str(kind.folder) not in str(path) and access(path, *mode))
    with pytest.raises(Unreachable, match="cannot write"):
        page.write(POINTS, 0)
    monkeypatch.undo()
    kind.tracker().page(CARD).write(POINTS, 0)
    kind.tracker()
    assert kind.read()[RUN].points["accuracy"] == [(step, step / 8) for step in range(1, 5)]


def test_its_own_process_dies(kind: WandbKind) -> None:
    assert lives(kind.folder, 4, "bereft") == (0, "")
    assert kind.read()[RUN].points["accuracy"] == [(step, step / 8) for step in range(1, 5)]


def test_another_projects_runs_are_others(kind: WandbKind) -> None:
    kind.tracker().page(CARD).write(POINTS, 0)
    kind.tracker()
    for name, content in (("run-x", b"no log"), (f"run-{RUN}", b""), (f"run-{RUN}", wandb_logs.MAGIC + b"\0" * 90)):
        folder = kind.folder / "wandb" / f"offline-run-20200101_00000{len(content) % 10}-{name[4:]}"
        folder.mkdir()
        (folder / f"{name}.wandb").write_bytes(content)
    other = to_wandb.opened(str(kind.folder), "other", "")
    page = other.page(CARD)
    page.write(POINTS[:2], 0)
    other.finish(RUN)
    assert wandb_logs.standing_of(kind.folder / "wandb", RUN, "other").last == {"accuracy": 1, "accuracy/a": 1}
    assert wandb_logs.standing_of(kind.folder / "wandb", RUN, "tideline").next == 4
    assert kind.tracker().written() == frozenset() and not isinstance(page, Refused)
