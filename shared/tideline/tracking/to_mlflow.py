"""Pages in an MLflow: a run for each, found by its tag `tideline.run`. Needs mlflow, or mlflow-skinny (`tideline[mlflow]`).

A mark is a tag, written after the points that it stands for. What was written between the two is seen by the last step of each
metric. Whoever called before may still be heard by the server after him who follows: a run that was made twice so is dropped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tideline.core.errors import ConfigRefused, FederationError, Refused, Unreachable
from tideline.tracking.pages import OFTEN, Card, Ending, ModelFile, Page, Point, said, unwritten, wanting

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

RUN, PARENT, MARK, WRITTEN = "tideline.run", "mlflow.parentRunId", "tideline.events", "tideline.written"
YES = "yes"
MANY = 100  # parameters that are written together
PAGE = 1000  # runs that are listed together
STATUS = {"completed": "FINISHED", "failed": "FAILED", "cancelled": "KILLED", "deleted": "KILLED"}
# It tries nothing again by itself: the follower does, and says so. And the seconds of one call.
OWN = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "60"}
OWN |= {"MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true"}
EXISTS = "RESOURCE_ALREADY_EXISTS"
LOGIN = "Set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN, for somebody who may write there"


@dataclass(frozen=True)
class Place:
    """Where to write. registered: the name of the registered model whose versions the runs' models become; empty: none."""

    uri: str
    experiment: str = "tideline"
    registered: str = ""

    @property
    def shown(self) -> str:
        """The address without what opens it."""
        parts = urlsplit(self.uri)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def opened(uri: str | None, experiment: str | None, registered: str) -> Mlflow:
    """Raises ConfigRefused without an address, or without the package."""
    for name, value in OWN.items():
        os.environ.setdefault(name, value)
    try:
        import mlflow.tracking  # noqa: F401
    except ImportError:
        raise wanting("mlflow", "mlflow") from None
    found = uri or os.environ.get("MLFLOW_TRACKING_URI", "")
    if not found:
        todo = "Give --uri, such as http://127.0.0.1:5000, or set MLFLOW_TRACKING_URI"
        raise ConfigRefused("Nothing says where MLflow is", todo, path="uri")
    return Mlflow(Place(found, experiment or "tideline", registered))


class Mlflow:
    """One tracking server."""

    name = "mlflow"

    def __init__(self, place: Place) -> None:
        from mlflow.tracking import MlflowClient

        self.place = place
        with answering(place):
            registry = os.environ.get("MLFLOW_REGISTRY_URI", place.uri)
            self._client = MlflowClient(tracking_uri=place.uri, registry_uri=registry)

    def written(self) -> frozenset[str]:
        with answering(self.place):
            found = list(self._search(f"tags.`{WRITTEN}` = '{YES}'"))
        return frozenset(run.data.tags[RUN] for run in found if RUN in run.data.tags)

    def page(self, card: Card) -> Page:
        with answering(self.place):
            runs = self._of(card.run)
            if not runs:
                self._make(card)
                runs = self._of(card.run)
            alive = [run for run in runs if run.info.lifecycle_stage == "active"]
            for twice in alive[1:]:
                self._client.delete_run(twice.info.run_id)
            page = MlflowPage(self._client, self.place, alive[0] if alive else runs[0], deleted=not alive)
            page.registers = self.place.registered if card.parent is None else ""
            page.describe(card)
        return page

    def _of(self, run: str) -> list[Run]:
        """The runs of one of ours, the one that is furthest first."""
        found = self._search(f"tags.`{RUN}` = '{run}'")
        return sorted(found, key=lambda each: (-mark_of(each), each.info.run_id))

    def _search(self, words: str) -> Iterator[Run]:
        from mlflow.entities import ViewType

        token = None
        while True:
            found = self._client.search_runs([self._experiment()], words, ViewType.ALL, PAGE, page_token=token)
            yield from found
            if not (token := found.token):
                return

    def _experiment(self) -> str:
        """The experiment's id; made if it is not there."""
        from mlflow.exceptions import MlflowException

        found = self._client.get_experiment_by_name(self.place.experiment)
        if found is None:
            try:
                return str(self._client.create_experiment(self.place.experiment))
            except MlflowException as cause:  # another follower was faster
                found = self._client.get_experiment_by_name(self.place.experiment)
                if cause.error_code != EXISTS or found is None:
                    raise
        return str(found.experiment_id)

    def _make(self, card: Card) -> None:
        tags = {**card.tags, RUN: card.run, "mlflow.source.name": "tideline", "mlflow.source.type": "JOB"}
        parents = self._of(card.parent) if card.parent else []
        if parents:
            tags[PARENT] = parents[0].info.run_id
        self._client.create_run(self._experiment(), millis(card.created), tags, run_name=card.name)


class MlflowPage:
    """One run there. registers: the registered model whose versions its models become; empty: none."""

    registers = ""

    def __init__(self, client: MlflowClient, place: Place, run: Run, deleted: bool) -> None:
        self._client, self._place, self._run = client, place, run
        self.mark = mark_of(run)
        self.over = deleted or run.data.tags.get(WRITTEN) == YES
        self._id = str(run.info.run_id)
        self._last = {each.key: int(each.step) for each in run.to_proto().data.metrics}

    def describe(self, card: Card) -> None:
        """Write the parameters that are not there."""
        from mlflow.entities import Param

        new = [Param(name, value) for name, value in card.parameters.items() if name not in self._run.data.params]
        for at in range(0, 0 if self.over else len(new), MANY):
            self._client.log_batch(self._id, params=new[at : at + MANY])

    def set_tags(self, tags: Mapping[str, str]) -> None:
        from mlflow.entities import RunTag

        with answering(self._place):
            self._client.log_batch(self._id, tags=[RunTag(name, value) for name, value in tags.items()])

    def write(self, points: Sequence[Point], mark: int) -> None:
        from mlflow.entities import Metric

        new = unwritten(points, self._last)
        with answering(self._place):
            for at in range(0, len(new), OFTEN):
                batch = new[at : at + OFTEN]
                self._client.log_batch(self._id, metrics=[Metric(p.key, p.value, millis(p.at), p.step) for p in batch])
                self._last |= {point.key: point.step for point in batch}
            if mark > self.mark:
                self._client.set_tag(self._id, MARK, str(mark))
                self.mark = mark

    def attach(self, folder: Path, models: Sequence[ModelFile]) -> None:
        with answering(self._place):
            self._client.log_artifacts(self._id, str(folder))
            for model in models if self.registers else ():
                self._register(model, model.path.relative_to(folder))

    def _register(self, model: ModelFile, path: Path) -> None:
        """A version of the registered model, unless this run has it already."""
        from mlflow.exceptions import MlflowException

        name = f"{self.registers}-{model.site}" if model.site else self.registers
        try:
            self._client.create_registered_model(name)
        except MlflowException as cause:
            if cause.error_code != EXISTS:
                raise
        source = f"{self._run.info.artifact_uri}/{path.as_posix()}"
        known = self._client.search_model_versions(f"name = '{name}'")
        if all(each.run_id != self._id for each in known):
            self._client.create_model_version(name, source, self._id, tags=dict(model.lineage), await_creation_for=0)

    def close(self, ending: Ending) -> None:
        self.set_tags({**ending.tags, "tideline.status": ending.status})
        with answering(self._place):
            self._client.set_terminated(self._id, STATUS.get(ending.status, "KILLED"), millis(ending.ended))
            self._client.set_tag(self._id, WRITTEN, YES)
        self.over = True


def mark_of(run: Run) -> int:
    """How far a run is; -1 of one that was made and no more."""
    found = str(run.data.tags.get(MARK, "0"))
    return int(found) if found.isdecimal() and len(found) < 12 else 0


def millis(at: float) -> int:
    return int(at * 1000)


@contextmanager
def answering(place: Place) -> Iterator[None]:
    """Turn MLflow's errors into Unreachable, where waiting may help, and Refused."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as cause:
        raise in_words(place, cause) from None
    except (OSError, ValueError) as cause:
        raise away(place, said(cause)) from None


def in_words(place: Place, cause: Any) -> FederationError:
    """An error of MLflow as one of ours."""
    status = cause.get_http_status_code()
    if status in (401, 403):
        return Refused(f"MLflow at {place.shown} refuses ({status}): {said(cause)}", LOGIN, path="uri")
    if status == 429 or status >= 500:
        return away(place, said(cause))
    todo = "Check --uri, --experiment and --register, and that this is a server that mlflow 2 or 3 speaks to"
    return Refused(f"MLflow at {place.shown} refuses ({status}): {said(cause)}", todo, path="uri")


def away(place: Place, words: str) -> Unreachable:
    words = words.replace(place.uri, place.shown)
    return Unreachable(f"MLflow at {place.shown} does not answer as it should: {words}", "Check that it runs, and --uri")
