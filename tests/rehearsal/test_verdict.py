"""What a rehearsal comes to: gains, choice, expectation, and where it says no."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from tests.rehearsal.stage import (
    HELD_OUT,
    SHORT,
    TRAIN,
    Opener,
    experiment,
    federation,
    holdings,
    outputs_of,
    played,
    short_rehearsal,
    shown,
    statuses,
)
from tideline.core.asked.normalise import Scaling
from tideline.core.asked.world import World
from tideline.core.run import Role, RunId
from tideline.engine.ports.site import SiteData
from tideline.engine.simulation.federation import SimSite

AGAIN = {"label": "again", "method": "fedavg"}


def test_no_adaptation_against_itself_gains_nothing() -> None:
    """Every gain is 0 to the bit, and no adaptation alone is chosen by the rules that choose one."""
    result = played(federation(), experiment(AGAIN, then="run", rehearse={"rule": "mean"}))
    verdict = result["verdict"]
    assert {gain for site in verdict["sites"] for gain in site["gain"].values()} == {0.0}
    (target,) = verdict["targets"]
    assert target["chosen"] == {"no adaptation": 1.0}
    assert target["gain"] == {"value": 0.0, "low": 0.0, "high": 0.0} and target["changed"] == 0
    (dora,) = [each for each in result["clients"] if each["name"] == "dora"]
    assert dora["accuracy"] == dora["source_only"]


def test_all_sites_rehearse_and_the_target_is_scored() -> None:
    """Each labelled site plays once with every candidate; the runs at the targets are named."""
    on, result = short_rehearsal("run")
    verdict, run = result["verdict"], result["run"]
    assert verdict["unfinished"] == 0
    assert verdict["rehearsed_at"] == ["anna", "bert", "carl"] and not verdict["left_out"]
    assert verdict["runs"] == {"no adaptation": f"{run}-t0", "short": f"{run}-t1"}
    others = [row.id for row in on.run_service.family(RunId(run)) if row.id != run]
    clients = [client for other in others for client in shown(on, other)["clients"]]
    assert verdict["bytes"] == sum(client["bytes_up"] + client["bytes_down"] for client in clients) > 0
    assert len(statuses(on, run)) == 1 + 2 * 4 and set(statuses(on, run).values()) == {"completed"}
    assert verdict["gains"]["short"]["value"] < 0
    assert 0 < verdict["targets"][0]["changed"] < 1 or verdict["targets"][0]["chosen"] == {"no adaptation": 1.0}
    assert verdict["targets"][0]["accuracy"]["low"] <= verdict["targets"][0]["accuracy"]["value"]


def test_counts_are_of_all_rows() -> None:
    """An accuracy is a share of training rows and held-out ones: no step saw the labels of either."""
    sites = short_rehearsal()[1]["verdict"]["sites"]
    shares = [value * (TRAIN + HELD_OUT) for site in sites for value in site["accuracy"].values()]
    assert shares == pytest.approx([round(each) for each in shares])


def test_a_rehearsal_alone_trains_nothing_at_targets() -> None:
    """Without `then` the target is asked for its shift alone, and has an expectation all the same."""
    on, result = short_rehearsal()
    verdict = result["verdict"]
    assert verdict["runs"] == {} and [each["name"] for each in verdict["targets"]] == ["dora"]
    assert verdict["targets"][0]["gain"] is not None and verdict["targets"][0]["accuracy"] is None
    assert not [name for name in statuses(on, result["run"]) if name.startswith("-t")]


def test_so_many_sites_play() -> None:
    """`on: 2` has two of the labelled sites play, drawn by the seed."""
    sites = played(federation(), experiment(SHORT, rehearse={"on": 2}))["verdict"]["rehearsed_at"]
    assert len(sites) == 2


@dataclass(frozen=True)
class Unscored(Opener):
    """Held-out rows without labels."""

    def __call__(self, world: World, role: Role) -> SiteData:
        found = holdings(self.site)
        return replace(found, held_out=replace(found.held_out, y=None))


@dataclass(frozen=True)
class Permuted:
    """Labels that say nothing of the rows."""

    def __call__(self, y: Tensor) -> Tensor:
        return y[torch.randperm(len(y), generator=torch.Generator().manual_seed(3))]


@pytest.mark.nightly(job="numbers")
def test_a_site_with_wrong_labels_is_named() -> None:
    """Its rehearsal is near chance, the others' are not, and a note says where to look."""
    on = federation(bert=SimSite(Opener(1, Permuted())))
    roster = dict.fromkeys(("anna", "bert", "carl", "emil", "fred"), "source")
    result = played(on, experiment(SHORT, roster=roster, config={"rounds": 10, "rate": 0.1}))
    right = {site["name"]: site["accuracy"]["no adaptation"] for site in result["verdict"]["sites"]}
    assert right.pop("bert") < 0.4 < min(right.values())
    assert any("bert" in note and "labels" in note for note in result["notes"])


def test_labels_of_whoever_plays_change_nothing_that_is_sent() -> None:
    """With other labels at bert, the runs in which bert plays the target end in the same bytes, and it predicts the same."""
    plain, odd = short_rehearsal()[0], federation(bert=SimSite(Opener(1, Permuted())))
    runs = [short_rehearsal()[1]["run"], played(odd, experiment(SHORT))["run"]]
    for i in range(2):
        digests = [on.run_service.find(f"{run}-s1-{i}").state_digest for on, run in zip((plain, odd), runs, strict=True)]
        assert digests[0] == digests[1] is not None
        kept = [outputs_of(on, "bert", f"{run}-s1-{i}") for on, run in zip((plain, odd), runs, strict=True)]
        assert kept[0] == kept[1] != ()
    others = [on.run_service.find(f"{run}-s0-0").state_digest for on, run in zip((plain, odd), runs, strict=True)]
    assert others[0] != others[1]


@pytest.mark.nightly(job="numbers")
def test_the_best_round_is_a_matter_of_its_runs() -> None:
    """With `selection` the candidates' runs hold rows out to select by; what is compared are all rows all the same."""
    result = played(federation(), experiment(SHORT, selection="accuracy"))
    assert result["verdict"]["rehearsed_at"] == ["anna", "bert", "carl"]


def test_two_labelled_sites_normalise_at_the_target_as_where_they_rehearse() -> None:
    """One of them teaches while the other plays, so nothing can be shared there; what was rehearsed is what is run."""
    on = federation()
    run = on.start(experiment(SHORT, roster={"anna": "source", "bert": "source", "dora": "target"}, then="run"))
    kinds = {row.spec.world.scaling.kind for row in on.run_service.family(run)[1:]}
    assert kinds == {Scaling.SITE}


@pytest.mark.nightly(job="numbers")
def test_many_alike_vote_together() -> None:
    """Of more than twenty candidates alike each has less than the least weight that counts."""
    alike = [{"label": f"same {i}", "method": "fedavg", "config": {"rounds": 6}} for i in range(22)]
    none = {"method": "fedavg", "config": {"rounds": 1, "rate": 0.1}}
    roster = {"anna": "source", "bert": "source", "dora": "target"}
    result = played(federation(), experiment(*alike, roster=roster, **none))
    chosen = result["verdict"]["targets"][0]["chosen"]
    assert sum(chosen.values()) == pytest.approx(1.0) and chosen["same 0"] == chosen["same 21"] >= 1 / 23


def test_held_out_rows_without_labels_are_not_counted() -> None:
    """The site counts its training rows."""
    on = federation(bert=SimSite(Unscored(1)))
    result = played(on, experiment(SHORT))
    (bert,) = [site for site in result["verdict"]["sites"] if site["name"] == "bert"]
    assert bert["accuracy"]["no adaptation"] * TRAIN == pytest.approx(round(bert["accuracy"]["no adaptation"] * TRAIN))
    (held_out,) = [each for each in result["phases"] if each["name"] == "rehearsed_held_out"]
    assert held_out["replies"] == 3


def test_the_same_seed_gives_the_same_verdict() -> None:
    """State and verdict, whatever the runs are called."""
    results = [short_rehearsal("run")[1], played(federation(), experiment(SHORT, then="run"))]
    assert results[0]["verdict"]["targets"] == results[1]["verdict"]["targets"]
    assert results[0]["verdict"]["sites"] == results[1]["verdict"]["sites"]


def test_one_labelled_site_goes_by_agreement() -> None:
    """Nothing is rehearsed, and the verdict says what decides instead."""
    roster = {"anna": "source", "dora": "target"}
    result = played(federation(), experiment(SHORT, "gaussian_heads", roster=roster, then="run"))
    (target,) = result["verdict"]["targets"]
    assert target["trust"] == "not rehearsed" and target["gain"] is None and len(target["chosen"]) == 1
    assert any("agrees most" in note for note in result["notes"])


def test_the_event_of_the_choice() -> None:
    """Whoever follows the run's events sees what was chosen."""
    on, result = short_rehearsal()
    chosen = [event.data["chosen"] for event in on.journal.events(result["run"]) if "chosen" in event.data]
    assert chosen[-1] == {"dora": result["verdict"]["targets"][0]["chosen"]}
