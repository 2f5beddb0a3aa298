"""The runs of a rehearsal: each candidate at each site that plays the target, and at the targets; and the run that compares them.

Rehearsing chooses an adaptation for targets without any label of theirs. Its relatives are reverse validation (Zhong et al.,
2010) and leaving one domain out (Gulrajani, Lopez-Paz, 2021).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tideline.core.algorithm import REHEARSAL, candidates_of
from tideline.core.asked.normalise import NO_SCALING
from tideline.core.asked.scoring import Prior, Scoring, Selection
from tideline.core.asked.wire import NO_WIRE, wire_of
from tideline.core.asked.world import World, plain_world, world_in
from tideline.core.errors import ConfigRefused, Refused, RosterRefused, StepFailed
from tideline.core.phase import EXPECTED_COLUMNS, MOST_VALUES
from tideline.core.rows import NO_AUGMENT
from tideline.core.run import ClientId, Member, Role, RunId
from tideline.core.settings import EMPTY, Plain, nearest, parse
from tideline.engine.model.experiment import Candidate, Experiment, Rehearse
from tideline.engine.model.fold_report import named
from tideline.engine.ports.compute import Compute, DraftRequest

Roles = Mapping[ClientId, Role]
MOST_RUNS = 1000
OF_CANDIDATES = ("normalise",)  # what of the world a candidate may have otherwise
NO_ADAPTATION = "no adaptation"


@dataclass(frozen=True)
class Child:
    """One run of a rehearsal. rehearses: the site that plays the target; none: at the targets. path: its candidate's place.

    own_world: whether its candidate has something of the world otherwise.
    """

    id: RunId
    experiment: Experiment
    roster: Roles
    path: str
    rehearses: ClientId | None = None
    own_world: bool = False


@dataclass(frozen=True)
class Rehearsal:
    """A rehearsal laid out. by_site: of each site that plays the target, its runs; at_targets: theirs; each by candidate."""

    candidates: tuple[str, ...]
    by_site: Mapping[ClientId, tuple[Child, ...]] = field(default_factory=lambda: EMPTY)
    at_targets: tuple[Child, ...] = ()

    @property
    def children(self) -> tuple[Child, ...]:
        return (*(child for of in self.by_site.values() for child in of), *self.at_targets)


def laid_out(run: RunId, experiment: Experiment, roster: Roles, compute: Compute) -> Rehearsal:
    """The runs of an experiment that rehearses. Raises ConfigRefused, RosterRefused."""
    rehearse = experiment.rehearse
    assert isinstance(rehearse, Rehearse)
    check_mode(rehearse, experiment.world)
    reference = Candidate(
        method=experiment.method,
        label=NO_ADAPTATION,
        preset=experiment.preset,
        config=experiment.config,
        prior=Prior.SOURCE,
    )
    candidates = (reference, *(rehearse.candidates or usual(experiment, roster, compute)))
    check_labels(candidates)
    labelled = sorted(name for name, role in roster.items() if role is not Role.TARGET)
    targets = len(roster) > len(labelled)
    players = playing(rehearse, labelled, experiment.seed)
    check_roster(players, labelled, targets, experiment.then)
    made = [adapted(experiment, each, compute, place_of(i)) for i, each in enumerate(candidates)]
    if len(made) * (len(players) + 1) > MOST_RUNS:
        what = f"{len(made)} candidates at {len(players)} sites are more than {MOST_RUNS} runs"
        raise ConfigRefused(what, "Name fewer candidates, or say at how many sites: on: 5", path="rehearse.on")

    check_room_for(len(made), len(roster) - len(labelled))

    def child(i: int, name: str, who: Roles, of: str, rehearses: ClientId | None = None) -> Child:
        return Child(
            id=RunId(f"{run}-{name}{i}"),
            experiment=replace(made[i], name=f"{candidates[i].name} at {of}"),
            roster=who,
            path=place_of(i),
            rehearses=rehearses,
            own_world=bool(candidates[i].world),
        )

    everybody = range(len(made))
    by_site = {
        site: tuple(child(i, f"s{at}-", {**without_targets(roster), site: Role.TARGET}, site, site) for i in everybody)
        for at, site in enumerate(players)
    }
    then = tuple(child(i, "t", roster, "the targets") for i in everybody) if targets and experiment.then == "run" else ()
    return Rehearsal(tuple(each.name for each in candidates), by_site, then)


def without_targets(roster: Roles) -> Roles:
    return {name: role for name, role in roster.items() if role is not Role.TARGET}


def playing(rehearse: Rehearse, labelled: list[ClientId], seed: int) -> list[ClientId]:
    """The labelled sites that play the target, sorted: all, or so many of them, drawn by the seed; of one site none."""
    if rehearse.on == "all":
        chosen = labelled
    elif isinstance(rehearse.on, int) and rehearse.on >= 1:
        chosen = sorted(random.Random(seed).sample(labelled, min(rehearse.on, len(labelled))))
    else:
        what = f"rehearse.on is {rehearse.on!r}"
        raise ConfigRefused(what, "Write at how many labelled sites, such as 3, or all", path="rehearse.on")
    return chosen if len(labelled) > 1 else []


def check_roster(players: list[ClientId], labelled: list[ClientId], targets: bool, then: str) -> None:
    """Raises RosterRefused where there is nothing to do: no labels, or one site with labels and nothing to compare at targets."""
    if not labelled:
        raise RosterRefused("Nobody in the roster has labels", "Give a labelled site the role source", path="roster")
    if not players and not (targets and then == "run"):
        what = f"Only {labelled[0]} has labels, and a rehearsal at one site needs another to learn from"
        todo = "Add a labelled site; or write then: run with a target: the candidate that agrees most with all of them is taken"
        raise RosterRefused(what, todo, path="roster")
    if then == "run" and not targets:
        raise RosterRefused("then is run, and the roster has no target", "Add a target, or leave then out", path="then")


def check_room_for(candidates: int, targets: int) -> None:
    """Raises RosterRefused for more targets than the tables of one round have room for."""
    most = MOST_VALUES // (candidates + len(EXPECTED_COLUMNS))
    if targets > most:
        what = f"The roster has {targets:,} targets; with {candidates} candidates a verdict has room for {most:,}"
        raise RosterRefused(what, "Rehearse for some of the targets at a time, or name fewer candidates", path="roster")


def check_mode(rehearse: Rehearse, world: World) -> None:
    """Raises ConfigRefused for heads where an encoder trains that has seen the labels of whoever plays the target."""
    if rehearse.mode == "heads" and not world.frozen and (len(world.inputs) > 1 or world.tokens):
        what = "rehearse.mode is heads, and world.trains is all: an encoder that all sites trained has seen every site's labels"
        todo = "Write mode: full, or freeze the encoder: world.trains: head with weights (docs/networks.md)"
        raise ConfigRefused(what, todo, path="rehearse.mode")


def check_labels(candidates: tuple[Candidate, ...]) -> None:
    """Raises ConfigRefused unless there are candidates, each under a name of its own that can be shown."""
    if len(candidates) < 2:
        todo = "Name methods (tideline methods), or {label: ..., method: ..., config: ..., world: {normalise: site}}"
        raise ConfigRefused("rehearse.candidates is empty", todo, path="rehearse.candidates")
    names = Counter(each.name for each in candidates)
    for i, each in enumerate(candidates[1:]):
        path = f"rehearse.candidates[{i}]"
        check_shown(each.name, f"{path}.label")
        if names[each.name] > 1:
            todo = "Give each a label of its own: {label: ..., method: ...}"
            raise ConfigRefused(f"{path}: there are two candidates of the name {each.name}", todo, path=path)
        if odd := sorted(each.world.keys() - set(OF_CANDIDATES)):
            what = f"{path}.world.{odd[0]} cannot differ between candidates"
            todo = f"Use one of: {', '.join(OF_CANDIDATES)}{nearest(odd[0], OF_CANDIDATES)}"
            raise ConfigRefused(what, todo, path=f"{path}.world.{odd[0]}")


def check_shown(name: str, path: str) -> None:
    """Raises ConfigRefused for a name that no table of a result takes."""
    try:
        named(name, path)
    except StepFailed as error:
        raise ConfigRefused(error.what, error.todo, path=path) from None


def place_of(i: int) -> str:
    """Where in the experiment a candidate stands; the first, no adaptation, is the experiment's own method."""
    return f"rehearse.candidates[{i - 1}]" if i else ""


@contextmanager
def placed(of: Child) -> Iterator[None]:
    """What one of the runs is refused for is named at its candidate's place in the experiment."""
    try:
        yield
    except Refused as error:
        own = str(error.context.get("path") or "")
        top = own.split(".")[0] in ("roster", "weights", *(() if of.own_world else ("world",)))
        path = own if top or not of.path else f"{of.path}.{own}".rstrip(".")
        raise type(error)(f"{of.experiment.name}: {error.what}", error.todo, **{**error.context, "path": path}) from error


def usual(experiment: Experiment, roster: Roles, compute: Compute) -> tuple[Candidate, ...]:
    """The usual candidates of the world, those that can play in it. Raises ConfigRefused where none can."""
    found = [parse(Candidate, each) for each in candidates_of(experiment.world)]
    playable = tuple(each for each in found if plays(experiment, each, roster, compute))
    if not playable:
        what = f"None of the usual candidates ({', '.join(each.name for each in found)}) can play in this world"
        raise ConfigRefused(what, "Name candidates: rehearse: {candidates: [...]}", path="rehearse.candidates")
    return playable


def plays(experiment: Experiment, candidate: Candidate, roster: Roles, compute: Compute) -> bool:
    """Whether a candidate can play the roster, and its rehearsals, in which one labelled site fewer teaches."""
    labelled = sorted(name for name, role in roster.items() if role is not Role.TARGET)
    rosters = [roster, *([{**without_targets(roster), labelled[0]: Role.TARGET}] if len(labelled) > 1 else [])]
    try:
        own = adapted(experiment, candidate, compute, "")
        for each in rosters:
            compute.draft(request_of(own, each))
    except Refused:
        return False
    return True


def request_of(experiment: Experiment, roster: Roles, scoring: Scoring | None = None) -> DraftRequest:
    """What an experiment asks of whoever checks it. scoring: the experiment's unless given."""
    return DraftRequest(
        method=experiment.method,
        preset=experiment.preset,
        config=experiment.config,
        world=experiment.world,
        roster=tuple(Member(name, role, labelled=role is not Role.TARGET) for name, role in sorted(roster.items())),
        initial_weights=experiment.weights,
        sampling=experiment.sampling,
        scoring=scoring or experiment.scoring,
        augment=experiment.augment,
        computing=experiment.computing,
        wire=wire_of(experiment.wire),
        privacy=experiment.privacy,
        secure_sums=experiment.sums,
    )


def adapted(experiment: Experiment, candidate: Candidate, compute: Compute, place: str) -> Experiment:
    """The experiment of a candidate: its own settings over those of the experiment that its method has. Raises Refused errors."""
    try:
        described = compute.describe(candidate.method)
        names = {each.name for each in described.settings} - set(candidate.config)
        shared = {key: value for key, value in experiment.config.items() if key in names}
        world = world_in({**plain_world(experiment.world), **candidate.world}) if candidate.world else experiment.world
    except Refused as error:
        path = f"{place}.{error.context.get('path', 'method')}".strip(".")
        raise type(error)(f"{place or 'method'}: {error.what}", error.todo, **{**error.context, "path": path}) from None
    return replace(
        experiment,
        method=candidate.method,
        preset=candidate.preset,
        config={**shared, **candidate.config},
        world=world,
        prior=candidate.prior or experiment.prior,
        weights=experiment.weights if described.weights or world.frozen else "",
        sample=experiment.sample if described.sample else None,
        augment=experiment.augment if described.augments else NO_AUGMENT,
        rehearse=None,
        then="nothing",
        reference=None,
    )


def comparing(experiment: Experiment, of: Rehearsal) -> Experiment:
    """The experiment of the run that compares what the others predicted."""
    rehearse, waiting = experiment.rehearse, experiment.waiting
    assert isinstance(rehearse, Rehearse)
    config: dict[str, Plain] = {
        "candidates": list(of.candidates),
        "rehearsals": {site: [child.id for child in children] for site, children in of.by_site.items()},
        "at_targets": [child.id for child in of.at_targets],
        "rule": rehearse.rule.value,
    }
    # A site that has left since is left out; the others' rehearsals count.
    patient = replace(waiting, target_replies=None, min_replies=waiting.min_replies or 1)
    return replace(
        experiment,
        method=REHEARSAL,
        preset=None,
        config=config,
        world=replace(experiment.world, normalise=NO_SCALING),  # rows are compared as they are
        augment=NO_AUGMENT,  # and it trains on none
        wire=NO_WIRE,  # nor sends any weights
        waiting=patient,
        selection=Selection.NONE,  # it compares all rows, and has no best round
        prior=Prior.SOURCE,  # what is compared is corrected already
        weights=experiment.weights if experiment.world.frozen else "",
        sample=None,
        rehearse=None,
        reference=None,
        then="nothing",
    )
