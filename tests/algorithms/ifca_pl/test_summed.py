"""IFCA where sums are secure: each site chooses for itself, and nobody learns which model that was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.algorithms.compare import memory_of, same
from tests.algorithms.source_free.played import away, states
from tests.laws.stage import Cuts, HoardingParts, Stage, hoarding_stage
from tests.laws.values import raw
from tests.secure.runs.played import Choose, ended
from tests.synthetic import Rows, blobs, experiment
from tideline.algorithms import METHODS
from tideline.algorithms.ifca_pl import where_summed
from tideline.algorithms.ifca_pl.choosing import Config, Models
from tideline.algorithms.ifca_pl.summed import IN_EACH, SUMS, Choosing, Offered, Put, put, with_choice
from tideline.algorithms.ifca_pl.summed import State as Summed
from tideline.core.asked.secure import SecureSums
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, Malformed
from tideline.core.phase import Turn
from tideline.core.privacy import DEFAULT_POLICY, Audience, Exposure
from tideline.core.run import ClientId, Member, Role
from tideline.core.step import Site
from tideline.engine.model.runs import Status
from tideline.engine.simulation.federation import SimSite
from tideline.learning.around.sums import SUMS as BESIDE
from tideline.numerics.aggregation.averaging import weighted_sum

SOURCES, TARGETS = ("abel", "alma", "anna"), ("bert", "carl", "dora", "emil")
DOMAINS = dict.fromkeys(SOURCES, 0) | {"bert": 1, "carl": 1, "dora": 3, "emil": 3}
ROSTER = {**dict.fromkeys(SOURCES, "source"), **dict.fromkeys(TARGETS, "target")}
CONFIG = {"rounds": 2, "epochs": 1, "batch": 16, "rate": 0.01, "source_epochs": 10, "source_batch": 16, "source_rate": 0.05}
APART = {**CONFIG, "noise": 0.5}  # with which, and the seed below, one site takes a model alone, three another, and one is left
PATIENT = {"min_replies": 3, "deadline": 60.0}


def sites() -> dict[str, SimSite]:
    def site(name: str, domain: int, seed: int) -> SimSite:
        return SimSite(lambda world, role: Rows(blobs(41, domain, seed, world.inputs), blobs(60, domain, seed + 1, world.inputs)))

    return {name: site(name, domain, 2 * at) for at, (name, domain) in enumerate(DOMAINS.items())}


def stage(masks: bool = True, cuts: Cuts | None = None) -> Stage:
    return hoarding_stage(METHODS, sites(), cuts, masks)


def played(found: Stage | None = None, choose: Choose | None = None, **more: Any) -> tuple[Stage, Any]:
    found = found or stage()
    given = {"config": APART, "seed": 4, "secure_sums": True, "checkpoint_every": 1, **more}
    run = found.start(experiment("ifca_pl", ROSTER, **given))
    found.play(run, choose)
    return found, run


@pytest.fixture(scope="module")
def whole() -> tuple[Stage, Any]:
    """One run that several tests look at."""
    return played()


def known(found: Stage, run: Any) -> list[Any]:
    return states(found, run, BESIDE.of(Summed))


def counts(found: Stage, run: Any) -> list[list[float]]:
    """How many sites chose each model, of each round."""
    tables = [each.tables[IN_EACH] for each in found.journal.rounds(run) if IN_EACH in each.tables]
    assert all(table.rows == ("model 1", "model 2", "model 3") and table.columns == ("sites",) for table in tables)
    return [[value for (value,) in table.values] for table in tables]


@pytest.mark.nightly(job="numbers")
def test_masks_change_no_byte_whoever_chooses_what(whole: tuple[Stage, Any]) -> None:
    """And restarts of every process at every place change none, either."""
    digest = ended(*whole)
    assert digest == ended(*played(stage(masks=False)))
    assert digest == ended(*played(stage(cuts=Cuts(every=True))))


def test_it_is_told_how_many_chose_and_not_who(whole: tuple[Stage, Any]) -> None:
    """No group, mark or state says which site is where."""
    found, run = whole
    chosen = {name: memory_of(found, run, name, Choosing).choice for name in TARGETS}
    assert counts(found, run)[-1] == [float(list(chosen.values()).count(j)) for j in (1, 2, 3)]
    assert len(set(chosen.values())) == 2 and sum(counts(found, run)[0]) == len(TARGETS)
    assert not any(each["groups"] or each["marks"] for each in found.result(run)["phases"])
    assert not set(Summed.__dataclass_fields__) & {"chosen", "members"}  # type: ignore[attr-defined]


def test_a_model_that_nobody_chose_stays_and_the_others_move(whole: tuple[Stage, Any]) -> None:
    found, run = whole
    first = next(state for state in known(found, run) if state.models)
    (empty,) = (j for j in range(3) if not any(count[j] for count in counts(found, run)))
    last = known(found, run)[-1]
    assert [same(a, b) for a, b in zip(first.models, last.models, strict=True)] == [j == empty for j in range(3)]


def test_a_model_is_the_mean_over_those_who_chose_it() -> None:
    """But for the grid's steps: of the blocks of four sites' numbers, each alike whatever its rows."""
    world, rng = World(inputs=(8,), classes=3, model="mlp"), torch.Generator().manual_seed(0)
    data = sites()["bert"].open_site_data(world, Role.TARGET).train  # type: ignore[attr-defined]
    at = Site(Config(), world, ClientId("bert"), Role.TARGET, data, 1, rng)
    h = where_summed.begin(Config(), world, (), rng)
    state = where_summed.initial_weights.begin(Config(noise=0.5), world, (), rng, {**h.f, **h.g})  # type: ignore[union-attr]
    (order,) = {id(each): each for each in work().ask(state, turn(world)).values()}.values()
    chosen = [0, 0, 2, 0]
    moved = [{name: w + 0.01 * torch.randn(w.shape, generator=rng) for name, w in state.models[j].items()} for j in chosen]
    replies = [Put(f, torch.eye(3)[j]) for f, j in zip(moved, chosen, strict=True)]
    asked = SecureSums()
    given = [SUMS.of(reply, order, at, asked) for reply in replies]
    assert {name: tuple(v.shape) for name, v in given[0].items()} == dict(SUMS.shapes(order, Config(), world))
    total = {name: torch.stack([each[name].double() for each in given]).sum(0) for name in given[0]}
    made = SUMS.fold(total, state, turn(world), asked)
    for j, f in enumerate(made.state.models):  # type: ignore[union-attr]
        of_it = [each for each, place in zip(moved, chosen, strict=True) if place == j]
        mean = weighted_sum((1 / len(of_it), each) for each in of_it) if of_it else state.models[j]
        assert all(torch.allclose(f[name], mean[name], atol=1e-6) for name in f)
    assert same(made.state.models[1], state.models[1])  # type: ignore[union-attr]


@pytest.mark.parametrize("offered", [2, 4])
def test_a_site_has_to_do_with_k_models_and_no_other_number(offered: int) -> None:
    """Among more it would be alone with its own; of fewer to be scored, who chose the others would fail and so be known."""
    world, rng = World(inputs=(8,), classes=3, model="mlp"), torch.Generator().manual_seed(0)
    data = sites()["bert"].open_site_data(world, Role.TARGET).train  # type: ignore[attr-defined]
    at = Site(Config(), world, ClientId("bert"), Role.TARGET, data, 1, rng)
    h = where_summed.begin(Config(), world, (), rng)
    for choice in (0, 1, 3):
        with pytest.raises(Malformed, match=f"offers {offered} models, and the run has k = 3"):
            with_choice(Offered(h.f, (h.f,) * offered, h.g), Choosing({}, {}, choice), at)
    with pytest.raises(Malformed, match=f"offers {offered} models, and the run has k = 3"):
        put.run(Models(h.f, (h.f,) * (offered - 1), h.g), Choosing({}, {}, 0), at)


def turn(world: World) -> Turn[Config]:
    roster = tuple(Member(ClientId(name), Role(role), role == "source") for name, role in ROSTER.items())
    return Turn(config=Config(), world=world, roster=roster, round=1, rng=torch.Generator())


def work() -> Any:
    return next(phase for phase in where_summed.plan(Config()) if phase.sums is SUMS)


def test_a_site_keeps_the_model_that_it_chose(whole: tuple[Stage, Any]) -> None:
    """As it is after the sum. The coordinator says that it has none of a site's own."""
    found, run = whole
    last = known(found, run)[-1]
    for name in TARGETS:
        mine = memory_of(found, run, name, Choosing)
        assert same(mine.f, last.models[mine.choice - 1]) and same(mine.g, last.g)
    assert where_summed.site_models is not None and where_summed.site_models.known is None


def test_who_has_not_chosen_is_scored_with_the_source_model() -> None:
    found = stage()
    found, run = played(found, away(found, "emil", ("adapt", 1)), waiting=PATIENT, config={**APART, "rounds": 1})
    ended(found, run)
    mine, last = memory_of(found, run, "emil", Choosing), known(found, run)[-1]
    assert mine.choice == 0 and same(mine.f, last.f)
    assert sum(counts(found, run)[0]) == 3


@pytest.mark.nightly(job="numbers")
def test_the_first_models_are_those_of_the_runs_seed(whole: tuple[Stage, Any]) -> None:
    """Whatever the round of the sum that they are made in."""
    found, run = whole
    other, again = played(seed=3)
    one, two = (next(state for state in known(*each) if state.models) for each in ((found, run), (other, again)))
    apart = [{name: f[name] - state.f[name] for name in f} for state in (one, two) for f in state.models]
    assert len({raw(each["features.1.weight"]) for each in apart}) == 6


def test_the_contract_and_the_notes_say_that_a_model_may_be_one_sites(whole: tuple[Stage, Any]) -> None:
    found, run = whole
    clause = next(each for each in found.row(run).contract if (each.phase, each.field) == ("adapt", "values"))
    assert clause.audience == frozenset(Audience) and clause.exposure is Exposure.WEIGHTS
    assert "where one site alone chose a model" in clause.doc
    assert "to coordinator and peers and a sum over sites" in clause.sentence()
    said = " ".join(found.row(run).spec.notes)
    assert "secure_sums: in adapt, where one site alone chose a model" in said and "sees each site's" not in said
    source = next(each for each in found.row(run).contract if (each.phase, each.field) == ("source", "values"))
    assert source.audience == frozenset({Audience.SUM})


@pytest.mark.parametrize("audience", [Audience.COORDINATOR, Audience.PEERS])
def test_an_owner_whose_weights_only_sums_may_have_takes_no_part(audience: Audience) -> None:
    """For a sum of one would be what it forbids."""
    strict = replace(sites()["bert"], policy=DEFAULT_POLICY - {(Exposure.WEIGHTS, audience)})
    found = Stage(METHODS, sites() | {"bert": strict}, None, HoardingParts())
    row = found.row(played(found)[1])
    assert row.status is not Status.COMPLETED and "bert" in row.cause


def test_noise_cannot_be_added() -> None:
    """How many chose a model is in its mean, and would have to be noised, too."""
    with pytest.raises(ConfigRefused, match=r"of what adapt sums nothing can be shortened"):
        played(secure_sums={"norm": 1.0, "noise": 1.0})


@pytest.mark.nightly(job="numbers")
def test_rows_are_protected_in_blocks_that_nobody_sees() -> None:
    privacy = {"rows": 20, "noise": 2.0, "delta": 1e-3, "rate": 0.5}
    config = {**APART, "labels": "predicted", "k": 2, "rounds": 1, "source_epochs": 1}
    assert ended(*played(privacy=privacy, config=config)) != ""
