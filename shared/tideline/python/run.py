"""A run, of a coordinator or simulated: its result, metrics, models and a plot."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tideline.client.answers import RunResult
from tideline.client.http import Client
from tideline.client.watching import Watcher, follow
from tideline.core.algorithm import Methods
from tideline.core.errors import NotFound, Refused
from tideline.engine.model.runs import Status
from tideline.experiments.results import Ended, named, remote_model
from tideline.learning.exporting import check_which, export_model, format_of
from tideline.learning.model_file import FINAL, Model
from tideline.learning.prediction import Classifier, device_of
from tideline.nets import registry
from tideline.python.result import Result, framed, metrics_of
from tideline.report.run_plot import Figure, plotted

Networks = Mapping[str, registry.Build] | tuple[str, ...] | None
HISTORY = "?history=true"


class Run(ABC):
    """A run. `tideline.simulate` gives one that has ended, `Server.start` one that begins.

    >>> import torch, tideline
    >>> rows = torch.rand(20, 4), torch.arange(20) % 2
    >>> sites = {"a": tideline.Site(train=rows)}
    >>> run = tideline.simulate(method="fedavg", config={"rounds": 1}, world={"model": "mlp"}, sites=sites, progress=False)
    >>> run.status, run.model().predict(torch.rand(3, 4)).probabilities.shape
    ('completed', torch.Size([3, 2]))
    """

    def __init__(self, run: str, methods: Methods, networks: Networks) -> None:
        self.id, self._methods, self._networks = run, methods, networks

    def __repr__(self) -> str:
        return f"<Run {self.id}>"

    @property
    def result(self) -> Result:
        """The result, or as much as there is of it."""
        return Result.of(self._data(history=False))

    @property
    def status(self) -> str:
        """waiting, running, stalled, completed, failed or cancelled."""
        return self.result.status

    @property
    def cause(self) -> str:
        """Why the run stalled or failed; empty otherwise."""
        return self.result.cause

    def metrics(self) -> Any:
        """Every metric by round and site: a DataFrame if pandas is installed, else a list of `Metric`.

        Columns: round, site, role, metric, value; low, high (of a 95 % interval) and n (held-out rows) of the last scores.
        """
        return framed(metrics_of(self._data(history=True)))

    def model(self, site: str | None = None, device: str = "auto", which: str = FINAL) -> Classifier:
        """A model as a module: the run's, or a site's own. Raises NotFound where it is elsewhere, and says where.

        which: final, the last; best, that of the best round of a run with `selection`. device: where it computes; auto is a GPU
        if there is one.
        """
        with registry.beside(self._networks):
            return Classifier(self._model(site, check_which(which)), device_of(device))

    def export(self, path: Path | str, site: str | None = None, which: str = FINAL) -> Path:
        """Write a model: .safetensors, .pt or .onnx. site, which and errors as of `model`."""
        out = Path(path)
        chosen = format_of(out, None)
        with registry.beside(self._networks):
            export_model(self._model(site, check_which(which)), out, chosen)
        return out

    def plot(self) -> Figure:
        """Accuracy over the rounds, or each site's where it is scored once. Raises NotFound where none was scored."""
        return plotted(self._data(history=False))

    @abstractmethod
    def watch(self, progress: bool = True) -> Run:
        """Wait until the run, and its reference, has ended or stalled; itself. progress: bars, or lines, on stderr."""

    @abstractmethod
    def cancel(self) -> Run:
        """Cancel it; itself."""

    @abstractmethod
    def _data(self, history: bool) -> RunResult: ...

    @abstractmethod
    def _model(self, site: str | None, which: str) -> Model: ...


class SimulatedRun(Run):
    """A run that has ended in this process."""

    def __init__(self, data: RunResult, models: Mapping[str, Model], methods: Methods, networks: Networks) -> None:
        super().__init__(data["run"], methods, networks)
        self._result, self._models = data, models

    def watch(self, progress: bool = True) -> Run:
        return self

    def cancel(self) -> Run:
        return self

    def _data(self, history: bool) -> RunResult:
        return self._result

    def _model(self, site: str | None, which: str) -> Model:
        kind = "model" if which == FINAL else f"model-{which}"
        found = self._models.get(kind if site is None else f"{kind}-{site}")
        if found is None and site is not None and self._result.get("verdict"):
            found = self._models.get(kind)  # of the only target
        if found is not None:
            return found
        if self._result["status"] != Status.COMPLETED:
            what = f"The run is {self._result['status']}, so it has no model: {self._result['cause']}"
            raise Refused(what, "Correct what this names, and simulate again", path="run")
        ended = Ended(self._result, self._methods, which)
        own = [each for each in ended.roles if f"{kind}-{each}" in self._models]
        if site is None and own:
            what = f"With {ended.method.name} each site has a model of its own"
            raise NotFound(
                what, f"Name one: run.model(site={own[0]!r}){f', or another of {named(own)}' * (len(own) > 1)}", path="site"
            )
        ended.check(site)
        raise NotFound(f"{site or 'The run'} has no model in run {self.id}", "It took no part in the training of one")


class RemoteRun(Run):
    """A run of a coordinator."""

    def __init__(self, client: Client, run: str, methods: Methods, networks: Networks) -> None:
        super().__init__(run, methods, networks)
        self._client = client

    def watch(self, progress: bool = True) -> Run:
        with Watcher(quiet=not progress) as watcher:
            follow(self._client, self._quoted, watcher)
        return self

    def cancel(self) -> Run:
        self._client.post(f"/runs/{self._quoted}/cancel")
        return self

    @property
    def _quoted(self) -> str:
        return quote(self.id, safe="")

    def _data(self, history: bool) -> RunResult:
        return self._client.run(f"{self._quoted}{HISTORY if history else ''}")

    def _model(self, site: str | None, which: str) -> Model:
        model, _ = remote_model(self._client, self.id, site, self._methods, which)
        return model
