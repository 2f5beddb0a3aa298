"""A run's result, typed, and its metrics as rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tideline.client.answers import RunResult, Verdict

ENDS = ("low", "high")  # of an interval, after the name of a metric


@dataclass(frozen=True)
class SiteScore:
    """One site at the end of a run. Accuracies are in 0..1; None: the site was not scored.

    accuracy     of the last scoring, on held-out rows
    source_only  that of the reference run, the model that was not adapted; None without a reference
    samples      training rows

    >>> import tideline
    >>> tideline.SiteScore(name="a", role="target", accuracy=0.9, source_only=0.7, samples=100).role
    'target'
    """

    name: str
    role: str
    accuracy: float | None
    source_only: float | None
    samples: int | None


@dataclass(frozen=True)
class Metric:
    """One number that a site reported, or a score of its last scoring with a 95 % interval and n held-out rows.

    >>> import tideline
    >>> tideline.Metric(round=1, site="a", role="source", metric="accuracy", value=0.9).n is None
    True
    """

    round: int
    site: str
    role: str
    metric: str
    value: float | None
    low: float | None = None
    high: float | None = None
    n: int | None = None


@dataclass(frozen=True)
class Result:
    """What a run ended in, or as much as there is of it.

    status   waiting, running, stalled, completed, failed or cancelled; cause: why, where that needs saying
    sites    a line for each
    notes    what the run does otherwise than it was asked, in sentences
    data     all of it, as docs/result.md describes it

    >>> import torch, tideline
    >>> rows = torch.rand(20, 4), torch.arange(20) % 2
    >>> sites = {"a": tideline.Site(train=rows)}
    >>> run = tideline.simulate(method="fedavg", config={"rounds": 1}, world={"model": "mlp"}, sites=sites, progress=False)
    >>> run.result.status, [site.name for site in run.result.sites]
    ('completed', ['a'])
    """

    run: str
    name: str
    method: str
    status: str
    cause: str
    rounds: int | None
    seconds: float | None
    state_digest: str | None
    sites: tuple[SiteScore, ...]
    notes: tuple[str, ...]
    data: RunResult = field(repr=False)

    @classmethod
    def of(cls, data: RunResult) -> Result:
        """From the keys of a coordinator's answer, or a simulation's."""
        lines = data["clients"]
        fields = [each.name for each in dataclasses.fields(SiteScore)]
        sites = tuple(SiteScore(**{name: line.get(name) for name in fields}) for line in lines)  # type: ignore[arg-type]
        return cls(
            run=data["run"],
            name=data["name"],
            method=data["method"],
            status=data["status"],
            cause=data.get("cause") or "",
            rounds=data["rounds"],
            seconds=data["seconds"],
            state_digest=data["state_digest"],
            sites=sites,
            notes=tuple(data.get("notes", ())),
            data=data,
        )

    @property
    def verdict(self) -> Verdict | None:
        """What a rehearsal came to, by the keys of docs/rehearsal.md; None of other runs."""
        return self.data.get("verdict")

    def accuracy(self, role: str | None = None) -> float | None:
        """The mean accuracy of the sites that were scored, of one role or of all; None where none was."""
        known = [site.accuracy for site in self.sites if role in (None, site.role) and site.accuracy is not None]
        return sum(known) / len(known) if known else None


def metrics_of(data: RunResult) -> list[Metric]:
    """Every metric of every reply, by round, and the scores of the last scoring with their intervals."""
    roles = {client["name"]: client["role"] for client in data["clients"]}
    last = {point["client"]: point["round"] for point in data["curve"] if point["client"] is not None}
    rows = list[Metric]()
    for site, scores in data.get("scores", {}).items():
        for name, score in scores.items():
            number, found = last.get(site, data["rounds"] or 0), {key: score[key] for key in ("value", "low", "high")}
            role, n = roles.get(site, ""), score["rows"]
            rows.append(Metric(round=number, site=site, role=role, metric=name, n=n, **found))
    known = {(row.round, row.site, row.metric) for row in rows}
    rows += [each for each in reported(data, roles) if (each.round, each.site, each.metric) not in known]
    return sorted(rows, key=lambda row: (row.round, row.site, row.metric))


def reported(data: RunResult, roles: dict[str, str]) -> Iterator[Metric]:
    """The history's numbers."""
    for entry in data["history"] or ():
        said = entry["metrics"]
        for name, value in said.items():
            if name.rpartition("_")[2] in ENDS and name.rpartition("_")[0] in said:
                continue  # the interval of another
            low, high = (said.get(f"{name}_{end}") for end in ENDS)
            yield Metric(
                round=entry["round"],
                site=entry["client"],
                role=roles.get(entry["client"], ""),
                metric=name,
                value=value,
                low=low,
                high=high,
            )


def framed(rows: list[Metric]) -> Any:
    """The rows as a DataFrame if pandas is installed; else as they are."""
    try:
        import pandas
    except ImportError:
        return rows
    return pandas.DataFrame([dataclasses.asdict(row) for row in rows], columns=[each.name for each in dataclasses.fields(Metric)])
