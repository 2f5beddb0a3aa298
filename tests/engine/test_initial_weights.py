"""A run that begins from weights that a person brings: what is refused at its start, what it begins with, what is told of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from safetensors.torch import save
from torch import Tensor

from tests.engine.toys import BRIEF_KEYS
from tests.synthetic import FEATURES, experiment, sites
from tideline import nets
from tideline.algorithms import METHODS
from tideline.algorithms.averaging import fedavg
from tideline.algorithms.averaging.messages import State
from tideline.archive.layout import LIMITS
from tideline.archive.reader import decode
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, RosterRefused
from tideline.core.settings import parse, plain
from tideline.engine.coordinator.part_store import GRACE_SECONDS
from tideline.engine.model.experiment import UPLOADER, Experiment, read_experiment
from tideline.engine.model.runs import Status
from tideline.engine.simulation.federation import Federation

ROSTER = {"anna": "source", "bert": "source", "carl": "target"}
TARGETS = dict.fromkeys(ROSTER, "target")
SCORED = {"rounds": 0}


def weights(seed: int = 3) -> dict[str, Tensor]:
    """Weights of the experiment's network."""
    torch.manual_seed(seed)
    return nets.weights_of(nets.build(parse(World, FEATURES)))


def bring(federation: Federation, content: bytes) -> str:
    """Upload a file."""
    return federation.bring([content])


@pytest.fixture
def federation() -> Federation:
    """Three sites."""
    return Federation(METHODS, sites())


def started(federation: Federation, content: bytes, method: str = "fedavg", **more: Any) -> dict[str, Any]:
    """The result of a run from a file."""
    given = experiment(method, ROSTER, **more) | {"weights": bring(federation, content)}
    return federation.run(federation.start(given))


def refused(federation: Federation, content: bytes, said: str, method: str = "fedavg", **more: Any) -> ConfigRefused:
    """The refusal, at the start, of a run from a file. Nothing was begun."""
    given = experiment(method, ROSTER, **more) | {"weights": bring(federation, content)}
    with pytest.raises(ConfigRefused) as refusal:
        federation.start(given)
    assert said in refusal.value.what, refusal.value.what
    assert refusal.value.context["path"] == "weights" and refusal.value.todo
    assert federation.journal.run_ids() == ()
    return refusal.value


@pytest.mark.parametrize("method", ["fedavg", "fedprox"])
def test_no_rounds_end_in_the_weights(federation: Federation, method: str) -> None:
    """Every tensor in its name, dtype and bits; and the sites' accuracies are theirs."""
    result = started(federation, save(weights()), method, config=SCORED)
    assert result["status"] == "completed", result["cause"]
    state = decode(State, result["state_digest"], federation.parts)
    assert state.model.keys() == weights().keys()
    assert all(torch.equal(state.model[n], w) and state.model[n].dtype == w.dtype for n, w in weights().items())
    assert all(client["accuracy"] is not None for client in result["clients"])


@pytest.mark.parametrize("within", ["model", "a/b"])
def test_an_exported_state_is_a_file_of_weights(federation: Federation, within: str) -> None:
    """A run's final state with one model in it, as `run export` writes it, begins another run as the model alone does."""
    exported = save({f"{within}/{name}": w for name, w in weights().items()})
    ends = {started(federation, content, config=SCORED)["state_digest"] for content in (exported, save(weights()))}
    assert len(ends) == 1


def test_rounds_go_on_from_the_weights(federation: Federation) -> None:
    """The digest is another than from random numbers, and than from other weights; the same weights give the same."""
    ends = {seed: started(federation, save(weights(seed)))["state_digest"] for seed in (3, 4)}
    drawn = federation.run(federation.start(experiment("fedavg", ROSTER)))["state_digest"]
    assert len({*ends.values(), drawn}) == 3
    assert started(Federation(METHODS, sites()), save(weights()))["state_digest"] == ends[3]


def test_other_dtypes_and_layouts_become_the_networks(federation: Federation) -> None:
    """Numbers of another width are read as the network's, whatever the file's metadata."""
    wide = {name: w.double() for name, w in weights().items()}
    results = [started(federation, content, config=SCORED) for content in (save(wide, {"format": "pt"}), save(weights()))]
    assert results[0]["state_digest"] == results[1]["state_digest"]
    assert results[0]["weights"] != results[1]["weights"]


def test_what_is_told_of_it(federation: Federation) -> None:
    """The result, the run's facts and the audit log name the digest; of a run that brings none they say so, or nothing."""
    result = started(federation, save(weights()), config=SCORED)
    plain_one = federation.run(federation.start(experiment("fedavg", ROSTER)))
    row, other = (federation.journal.run(each["run"]) for each in (result, plain_one))
    assert row is not None and other is not None
    assert (row.spec.initial_weights, row.spec.initial_weights_bytes) == (result["weights"], len(save(weights())))
    assert plain_one["weights"] is None and (other.spec.initial_weights, other.spec.initial_weights_bytes) == (None, 0)
    told = {entry.run: entry.details for entry in federation.journal.audit() if entry.kind == "run_started"}
    assert told[row.id]["weights"] == result["weights"] and "weights" not in told[other.id]


def test_an_experiment_as_plain_data_names_the_weights() -> None:
    """Under the key that users write; empty without weights."""
    assert plain(read_experiment({"method": "fedavg"}))["weights"] == ""
    assert plain(Experiment("fedavg", weights="ab"))["weights"] == "ab"


def test_sites_are_told_nothing_of_it(federation: Federation) -> None:
    """An order's brief has no key of its own for them."""
    run = federation.start(experiment("fedavg", ROSTER) | {"weights": bring(federation, save(weights()))})
    (order,) = federation.agent_service.orders("anna")  # type: ignore[arg-type]
    assert order.run == run
    assert set(order.brief) == BRIEF_KEYS
    assert "weights" not in order.brief["world"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"features.1.weight": None}, "features.1.weight is missing, which is"),
        ({"more": torch.ones(2)}, "more is not in the network"),
        ({"classifier.bias": torch.ones(5)}, "classifier.bias is 5; this world has 3 classes: 3"),
        ({"features.1.bias": torch.full((64,), torch.nan)}, "features.1.bias holds a NaN or an infinity"),
        (
            {"features.1.bias": torch.full((64,), 1e300, dtype=torch.float64)},
            "features.1.bias holds a number that torch.float32 cannot",
        ),
        (
            {str(i): torch.ones(1) for i in range(5)},
            "0 is not in the network; 1 is not in the network; 2 is not in the network; and 2 more",
        ),
    ],
    ids=["missing", "extra", "classes", "nan", "beyond", "many"],
)
def test_weights_that_do_not_fit_are_refused_at_the_start(
    federation: Federation, change: Mapping[str, Tensor | None], said: str
) -> None:
    """By name, with the first three differences and how many more there are."""
    assert {"features.1.weight", "features.1.bias", "classifier.bias"} <= set(weights())
    changed = {name: w for name, w in {**weights(), **change}.items() if w is not None}
    refused(federation, save(changed), said)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x01w\x94]\x94(K\x01K\x02es.",
            "cannot be read as a safetensors file",
        ),
        (b"", "cannot be read as a safetensors file: An archive of 0 bytes has no header"),
        (save({}), "the file holds no tensors"),
        ((LIMITS.header_bytes + 1).to_bytes(8, "little") + bytes(64), "the limit is"),
    ],
    ids=["pickled", "empty", "nothing", "header"],
)
def test_files_that_are_none_are_refused_at_the_start(federation: Federation, content: bytes, said: str) -> None:
    """No byte of them is run, and what was wrong is said."""
    refused(federation, content, said)


def test_numbers_of_another_network_are_not_looked_at(federation: Federation) -> None:
    """Names and shapes are compared first: to look at one huge tensor takes several times its bytes."""
    error = refused(federation, save({"huge": torch.full((1 << 12,), torch.nan)}), "features.1.bias is missing")
    assert "NaN" not in error.what


def test_a_method_that_takes_none_says_which_do(federation: Federation) -> None:
    """Before the file is looked at."""
    error = refused(federation, save(weights()), "local takes no initial weights", "local")
    assert "fedavg, fedprox" in error.todo and "Leave weights out" in error.todo


@pytest.mark.parametrize("named", ["net.safetensors", "A" * 64, "0" * 63, " " + "b3-" + "0" * 64])
def test_what_names_no_upload_is_refused(federation: Federation, named: str) -> None:
    """A path means nothing to a coordinator."""
    with pytest.raises(ConfigRefused, match="BLAKE3") as refusal:
        federation.start(experiment("fedavg", ROSTER) | {"weights": named})
    assert refusal.value.context["path"] == "weights" and "PUT /weights" in refusal.value.todo


def test_weights_that_are_not_here_are_refused(federation: Federation) -> None:
    """Never uploaded; a part of a run's, which is nobody's weights; or bytes that the store has lost."""
    state = federation.run(federation.start(experiment("fedavg", ROSTER)))["state_digest"]
    lost = bring(federation, save(weights()))
    federation.parts.drop(lost)  # type: ignore[arg-type]
    for digest in ("b3-" + "0" * 64, state, lost):
        with pytest.raises(ConfigRefused, match="There are no weights") as refusal:
            federation.start(experiment("fedavg", ROSTER) | {"weights": digest})
        assert refusal.value.context["path"] == "weights" and "PUT /weights" in refusal.value.todo
    assert len(federation.journal.run_ids()) == 1


def test_sites_without_labels_may_be_scored_and_not_taught(federation: Federation) -> None:
    """Without rounds nobody needs to learn; with rounds the roster is refused as ever."""
    digest = bring(federation, save(weights()))
    given = experiment("fedavg", TARGETS) | {"weights": digest}
    with pytest.raises(RosterRefused, match="No member can teach"):
        federation.start(given)
    with pytest.raises(RosterRefused, match="No member can teach"):
        federation.start(given | {"config": SCORED, "weights": ""})
    result = federation.run(federation.start(given | {"config": SCORED}))
    assert result["status"] == "completed" and [c["role"] for c in result["clients"]] == ["target"] * 3


@pytest.mark.parametrize(("method", "same"), [("fedprox", True), ("local", False)])
def test_a_reference_begins_from_them_if_its_method_takes_any(federation: Federation, method: str, same: bool) -> None:
    """Else it begins as it always does."""
    toys = (*METHODS, ("plain", "tests.engine.test_initial_weights:plain_method"))
    federation = Federation(toys, sites())
    digest = bring(federation, save(weights()))
    run = federation.start(experiment("plain", ROSTER, reference={"method": method}) | {"weights": digest})
    row = federation.journal.run(run)
    assert row is not None and row.reference is not None
    sibling = federation.journal.run(row.reference)
    assert sibling is not None and sibling.spec.initial_weights == (digest if same else None)
    assert federation.run(run)["status"] == "completed"


def test_they_wait_an_hour_and_as_long_as_a_run_needs_them(federation: Federation) -> None:
    """From the upload, from a look, from a run that names them; while a run has not begun no time takes them."""
    digest = bring(federation, save(weights()))
    federation.clock.advance(GRACE_SECONDS - 1)
    assert federation.part_store.collect() == 0 and federation.part_store.has_initial_weights(digest)  # type: ignore[arg-type]
    federation.clock.advance(GRACE_SECONDS - 1)
    assert federation.part_store.collect() == 0
    run = federation.start(experiment("fedavg", ROSTER) | {"weights": digest})
    federation.clock.advance(3 * GRACE_SECONDS)
    assert federation.part_store.collect() == 0 and federation.parts.has(digest)  # type: ignore[arg-type]
    assert federation.run(run)["status"] == "completed"
    federation.part_store.collect()
    assert not federation.parts.has(digest)  # type: ignore[arg-type]
    with pytest.raises(ConfigRefused, match="There are no weights"):
        federation.start(experiment("fedavg", ROSTER) | {"weights": digest})


def test_several_runs_begin_from_one_upload(federation: Federation) -> None:
    """Also where the first has ended before the next is started, if that is within the hour."""
    digest = bring(federation, save(weights()))
    ends = []
    for _ in range(3):
        ends.append(federation.run(federation.start(experiment("fedavg", ROSTER) | {"weights": digest}))["state_digest"])
        federation.part_store.collect()
        federation.clock.advance(GRACE_SECONDS / 2)
    assert len(set(ends)) == 1


def test_a_cancelled_run_needs_them_no_more(federation: Federation) -> None:
    """Its reference to them ends with it."""
    digest = bring(federation, save(weights()))
    run = federation.start(experiment("fedavg", ROSTER) | {"weights": digest})
    federation.run_service.cancel(run)
    assert federation.run_service.find(run).status is Status.CANCELLED
    federation.clock.advance(GRACE_SECONDS + 1)
    assert federation.part_store.collect() == 1 and not federation.parts.has(digest)  # type: ignore[arg-type]


def test_no_client_hears_of_an_upload(federation: Federation) -> None:
    """A site that asks whether it must send the same bytes is told so, as of anything that it has not sent."""
    digest = bring(federation, save(weights()))
    run = federation.start(experiment("fedavg", ROSTER) | {"weights": digest})
    journal, now = federation.journal, federation.clock.now()
    assert journal.held(((digest, 1),), run, "anna", now) == frozenset()  # type: ignore[arg-type]
    assert journal.held(((digest, 1),), *UPLOADER, now) == {digest}


plain_method = replace(fedavg, name="plain", plan=lambda c: tuple(p for p in fedavg.plan(c) if p.name == "train"))
