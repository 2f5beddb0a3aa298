"""The trackers that there are, each read back by its own reader."""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.tracking.following import Dying
from tideline.tracking.pages import Tracker

Steps = Mapping[str, list[tuple[int, float]]]


@dataclass(frozen=True)
class Read:
    """What stands at a tracker of one run. status: in its own words; files: by their paths."""

    name: str
    status: str
    points: Steps
    parameters: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    files: frozenset[str] = frozenset()
    parent: str = ""


class Kind(Protocol):
    """One tracker, at a place of its own."""

    name: str
    done: str  # its word for a run that has completed

    def tracker(self) -> Tracker: ...

    def dying(self, n: int) -> AbstractContextManager[Tracker]:
        """Make a tracker that dies before its n-th write, if no thread or process of its own would outlive it."""
        raise NotImplementedError

    def read(self) -> Mapping[str, Read]:
        """Every run that stands there, by the coordinator's id. Raises AssertionError for one that stands there twice."""


class MlflowKind(Kind):
    """An experiment of a real server."""

    name, done = "mlflow", "FINISHED"
    WRITES = (
        *("create_experiment", "create_run", "log_batch", "set_tag", "log_artifacts", "create_registered_model"),
        *("create_model_version", "set_terminated", "delete_run"),
    )

    def __init__(self, address: str, experiment: str) -> None:
        self.address, self.experiment = address, experiment

    def tracker(self) -> Any:
        from tideline.tracking import to_mlflow

        return to_mlflow.opened(self.address, self.experiment, f"model of {self.experiment}")

    @contextmanager
    def dying(self, n: int) -> Iterator[Tracker]:
        made = self.tracker()
        made._client = Dying(made._client, self.WRITES, n)
        yield made

    @property
    def client(self) -> Any:
        from mlflow.tracking import MlflowClient

        return MlflowClient(self.address, self.address)

    def read(self) -> Mapping[str, Read]:
        client, found = self.client, dict[str, Read]()
        experiment = client.get_experiment_by_name(self.experiment)
        for run in client.search_runs([experiment.experiment_id]) if experiment else ():
            tags, at = run.data.tags, run.info.run_id
            assert tags["tideline.run"] not in found, "a run stands there twice"
            points = {key: [(m.step, m.value) for m in client.get_metric_history(at, key)] for key in run.data.metrics}
            files = frozenset(self.files(client, at, None))
            name = run.info.run_name
            found[tags["tideline.run"]] = Read(
                name, run.info.status, points, run.data.params, tags, files, tags.get("mlflow.parentRunId", "")
            )
        return found

    def files(self, client: Any, run: str, folder: str | None) -> Iterator[str]:
        for each in client.list_artifacts(run, folder):
            if each.is_dir:
                yield from self.files(client, run, each.path)
            else:
                yield each.path

    def versions(self) -> list[Any]:
        return list(self.client.search_model_versions(f"name = 'model of {self.experiment}'"))


class TensorBoardKind(Kind):
    """A folder."""

    name, done = "tensorboard", "completed"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def tracker(self) -> Any:
        from tideline.tracking import to_tensorboard

        return to_tensorboard.opened(str(self.folder))

    @contextmanager
    def dying(self, n: int) -> Iterator[Tracker]:
        from tideline.tracking import to_tensorboard

        with pytest.MonkeyPatch.context() as patch:
            disk = Dying(to_tensorboard, ("replace_file", "append_records"), n)
            copies = Dying(to_tensorboard.shutil, ("copytree",), n)
            for name in ("replace_file", "append_records"):
                patch.setattr(to_tensorboard, name, shared(disk, copies, name))
            patch.setattr(to_tensorboard, "shutil", copies)
            yield self.tracker()

    def read(self) -> Mapping[str, Read]:
        from tideline.tracking.to_tensorboard import about_of

        found = dict[str, Read]()
        for folder in sorted(self.folder.iterdir()):
            about, points, texts = about_of(folder), *read_events(folder)
            assert about["run"] not in found, "a run stands there twice"
            files = frozenset(str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file())
            parameters = {"text": "\n".join(texts)}
            tags = about["tags"]
            found[about["run"]] = Read(folder.name, tags["tideline.status"], points, parameters, tags, files)
        return found


def shared(disk: Dying, copies: Dying, name: str) -> Any:
    """A function whose calls count together with those of copies."""
    call = getattr(disk, name)

    def counted(*given: Any, **more: Any) -> Any:
        disk.left = copies.left = min(disk.left, copies.left)
        try:
            return call(*given, **more)
        finally:
            copies.left = disk.left

    return counted


def read_events(folder: Path) -> tuple[Steps, list[str]]:
    """A folder's numbers and texts, by the reader that TensorBoard has."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    reader.Reload()
    tags = reader.Tags()
    points = {tag: [(each.step, each.value) for each in reader.Scalars(tag)] for tag in tags["scalars"]}
    texts = [each.tensor_proto.string_val[0].decode() for tag in tags["tensors"] for each in reader.Tensors(tag)]
    return points, texts


class TrackioKind(Kind):
    """A project."""

    name, done = "trackio", "completed"

    def __init__(self, folder: Path, project: str) -> None:
        self.folder, self.project = folder, project

    def tracker(self) -> Any:
        from tideline.tracking import to_trackio

        return to_trackio.opened(None, self.project)

    def read(self) -> Mapping[str, Read]:
        import trackio

        store, found = trackio.SQLiteStorage, dict[str, Read]()
        for name in store.get_runs(self.project) if self.project in store.get_projects() else ():
            points = defaultdict[str, list[tuple[int, float]]](list)
            for row in store.get_logs(self.project, name):
                for key in row.keys() - {"step", "timestamp"}:
                    points[key].append((row["step"], row[key]))
            config = store.get_run_config(self.project, name)
            assert config["tideline.run"] not in found, "a run stands there twice"
            found[config["tideline.run"]] = Read(name, config["tideline.status"], dict(points), config, config)
        return found


class WandbKind(Kind):
    """A project in a folder."""

    name, done = "wandb", "completed"

    def __init__(self, folder: Path) -> None:
        self.folder, self._made = folder, list[Any]()

    def tracker(self) -> Any:
        """One whose forerunners in this process are gone: wandb's own process would keep their runs open."""
        from tideline.tracking import to_wandb

        for each in self._made:
            for run in list(each._runs):
                each.finish(run)
        self._made.append(to_wandb.opened(str(self.folder), None, ""))
        return self._made[-1]

    def read(self) -> Mapping[str, Read]:
        found = dict[str, Read]()
        for path in sorted(self.folder.glob("wandb/*run-*/run-*.wandb"), key=lambda path: path.stat().st_mtime_ns):
            run = path.stem.removeprefix("run-")
            found[run] = read_records(inspected(path), found.get(run) or Read("", "", {}))
        return {str(each.parameters["tideline.run"]): each for each in found.values()}


def read_records(records: Iterator[dict[str, Any]], before: Read) -> Read:
    """A run by one more of its logs. before: by the others."""
    points, config, files = {key: [*of] for key, of in before.points.items()}, {**before.parameters}, set(before.files)
    name, parent, steps = before.name, before.parent, list[int]()
    for record in records:
        of = record.get(record["type"], {})
        if record["type"] == "run":
            name, parent = of["display_name"], "" if of["run_group"] == of["run_id"] else of["run_group"]
            assert of["project"] == "tideline"
        if record["type"] in ("run", "config"):
            config |= of.get("config", of).get("update", {})
        if record["type"] == "artifact":
            files |= {each["path"] for each in of["manifest"]["contents"]}
        if record["type"] == "history":
            row = of["item"]
            steps.append(row["_step"])
            for key in row.keys() - {"round", "_step", "_timestamp", "_runtime"}:
                points.setdefault(key, []).append((row["round"], row[key]))
    assert len(set(steps)) == len(steps), "a step stands there twice"
    return Read(name, config.get("tideline.status", ""), points, config, config, frozenset(files), parent)


def inspected(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a log, by the reader that wandb has."""
    from wandb.util import get_core_path

    command = [get_core_path(), "leet", "inspect", "--json", "--no-observability", "--run-file", str(path)]
    told = subprocess.run(command, check=True, capture_output=True, text=True)
    yield from map(json.loads, told.stdout.splitlines())


def kind_of(name: str, request: pytest.FixtureRequest, folder: Path) -> Kind:
    """A tracker at a place of its own; skips where its package is not installed."""
    if name == "mlflow":
        return MlflowKind(request.getfixturevalue("mlflow_server"), folder.name)
    pytest.importorskip(name)
    if name == "trackio":
        return TrackioKind(folder, folder.name)
    return TensorBoardKind(folder) if name == "tensorboard" else WandbKind(folder)


KINDS = ("mlflow", "tensorboard", "trackio", "wandb")
