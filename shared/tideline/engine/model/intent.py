"""Who asks for what in a run: one value for an order's brief, the coordinator's audit log and the ledger of each of its sites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from tideline.core.run import NO_DIGEST, Digest, RunId
from tideline.core.settings import Plain
from tideline.engine.model.access.projects import DEFAULT, NAME
from tideline.engine.model.runs import RunRow

LONGEST = 200  # characters of a name or a digest
FIELDS = frozenset({"by", "experiment", "sites", "weights", "parent", "project"})


@dataclass(frozen=True)
class Intent:
    """What a run's user means by it.

    by          who started the run, by the name of the key
    experiment  the digest of what that user asked for
    sites       how many sites the run names
    weights     the file that the run begins from; None: it draws its own
    parent      the run that it belongs to, as its reference or in its rehearsal
    project     whose run it is
    """

    by: str = ""
    experiment: Digest = NO_DIGEST
    sites: int = 0
    weights: Digest | None = None
    parent: RunId | None = None
    project: str = DEFAULT

    def plain(self) -> dict[str, Plain]:
        """The same for JSON. What a run has not is left out, and so is the default project."""
        weights: dict[str, Plain] = {} if self.weights is None else {"weights": self.weights}
        parent: dict[str, Plain] = {} if self.parent is None else {"parent": self.parent}
        project: dict[str, Plain] = {} if self.project == DEFAULT else {"project": self.project}
        return {"by": self.by, "experiment": self.experiment, "sites": self.sites, **weights, **parent, **project}


NO_INTENT = Intent()


def intent_of(run: RunRow) -> Intent:
    """What was asked for in a run."""
    spec = run.spec
    return Intent(
        by=spec.by,
        experiment=spec.experiment,
        sites=len(run.roster),
        weights=spec.initial_weights,
        parent=run.parent,
        project=run.project,
    )


def intent_in(said: object) -> Intent:
    """What `plain` gave. Raises ValueError for what it never gives. A coordinator from before there were intents tells none."""
    if not isinstance(said, Mapping) or not said.keys() <= FIELDS:
        raise ValueError("no intent")
    texts = (said.get("by", ""), said.get("experiment", NO_DIGEST), said.get("weights"), said.get("parent"))
    if not all(each is None or (isinstance(each, str) and len(each) <= LONGEST) for each in texts) or None in texts[:2]:
        raise ValueError("no intent")
    if not isinstance(project := said.get("project", DEFAULT), str) or not NAME.fullmatch(project):
        raise ValueError("no intent")
    if type(sites := said.get("sites", 0)) is not int:
        raise ValueError("no intent")
    by, experiment, weights, parent = texts
    return Intent(
        by=cast(str, by),
        experiment=Digest(cast(str, experiment)),
        sites=sites,
        weights=None if weights is None else Digest(cast(str, weights)),
        parent=None if parent is None else RunId(cast(str, parent)),
        project=project,
    )
