"""The contract: what it says, what a site may refuse, and when two of them are the same."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import json
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tideline.archive import errors as archive_errors
from tideline.core import errors as core_errors
from tideline.core.errors import ConfigRefused, ContractRefused, FederationError, Malformed
from tideline.core.notes import KINDS, Note
from tideline.core.privacy import (
    DEFAULT_POLICY,
    TO_BOTH,
    TO_COORDINATOR,
    TO_PEERS,
    Audience,
    Clause,
    Exposure,
    contract_digest,
    from_json,
    refused,
    to_json,
)
from tideline.engine.process.pipe import family

audiences = st.sampled_from([TO_COORDINATOR, TO_PEERS, TO_BOTH])
words = st.text(max_size=6)
clauses = st.builds(Clause, words, words, words, words, st.sampled_from(Exposure), audiences, words)
contracts = st.lists(clauses, max_size=5).map(tuple)
CLAUSE = Clause("learn", "fit", "z", "K n d", Exposure.SYNTHETIC, TO_BOTH, "points")


def test_the_default_policy() -> None:
    """Everything up to synthetic points goes to the coordinator, weights go to peers, features and samples go nowhere."""
    allowed = {e: {a for a in Audience if (e, a) in DEFAULT_POLICY} for e in Exposure}
    assert {e for e in Exposure if not allowed[e]} == {Exposure.FEATURES, Exposure.SAMPLES}
    assert {e for e in Exposure if Audience.PEERS in allowed[e]} == {Exposure.WEIGHTS}


@given(contracts, st.sets(st.tuples(st.sampled_from(Exposure), st.sampled_from(Audience))))
def test_a_clause_is_refused_unless_all_its_audiences_are_allowed(
    contract: tuple[Clause, ...], policy: set[tuple[Exposure, Audience]]
) -> None:
    """Refused is exactly what the policy lacks a pair for, in the contract's order; allowing those pairs allows all."""
    no = refused(contract, frozenset(policy))
    assert no == tuple(c for c in contract if not {(c.exposure, a) for a in c.audience} <= policy)
    wider = policy | {(c.exposure, a) for c in no for a in c.audience}
    assert refused(contract, frozenset(wider)) == ()


def test_every_single_forbidden_pair_is_noticed() -> None:
    """A policy that allows all but one pair refuses exactly the clauses with that pair."""
    everything = frozenset(itertools.product(Exposure, Audience))
    for exposure, audience in everything:
        clause = dataclasses.replace(CLAUSE, exposure=exposure, audience=frozenset(Audience))
        assert refused((clause,), everything) == ()
        assert refused((clause,), everything - {(exposure, audience)}) == (clause,)


def test_a_clause_for_nobody_is_never_agreed_to() -> None:
    """What names no audience could otherwise pass any policy."""
    nobody = dataclasses.replace(CLAUSE, audience=frozenset())
    assert refused((nobody,), frozenset(itertools.product(Exposure, Audience))) == (nobody,)


@given(contracts)
def test_contracts_go_through_json(contract: tuple[Clause, ...]) -> None:
    """Plain data, and back, with words and order kept."""
    assert from_json(json.loads(json.dumps(to_json(contract)))) == contract


@given(contracts, st.randoms(use_true_random=False))
def test_the_digest_is_that_of_the_meaning(contract: tuple[Clause, ...], random: object) -> None:
    """Words, order and repeats do not count."""
    mixed = [dataclasses.replace(c, doc=c.doc + "!") for c in contract] + list(contract)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert contract_digest(tuple(mixed)) == contract_digest(contract)


CHANGES: dict[str, Any] = {
    "phase": "embed",
    "step": "run",
    "field": "y",
    "dims": "K n",
    "exposure": Exposure.FEATURES,
    "audience": TO_COORDINATOR,
    "wire": "int8",
    "private": "with noise",
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_digest_changes_with_every_meaning(name: str) -> None:
    """Any part of a clause but its words makes another contract, and so does a clause more."""
    other = dataclasses.replace(CLAUSE, **{name: CHANGES[name]})
    digests = {contract_digest(c) for c in ((), (CLAUSE,), (other,), (CLAUSE, other))}
    assert len(digests) == 4 and set(CHANGES) == {f.name for f in dataclasses.fields(Clause)} - {"doc"}


def test_the_digest_of_a_contract_is_fixed() -> None:
    """Two versions of Tideline agree on it: the digest is part of every run."""
    assert contract_digest((CLAUSE,)) == "44343aeeabc68b6b7eb096c1656fefcab7f828604114d52b646fe1eaa060f0aa"


BROKEN = {
    "an unknown exposure": {"exposure": "gradients"},
    "an unknown audience": {"audience": ["world"]},
    "no audience at all": {"audience": None},
    "a list for an exposure": {"exposure": []},
}


@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN)
def test_clauses_of_another_version_are_refused(change: dict[str, object]) -> None:
    """What this version cannot understand it declines with a sentence, not with a crash."""
    with pytest.raises(ContractRefused, match="cannot be understood"):
        from_json([to_json((CLAUSE,))[0] | change])
    with pytest.raises(ContractRefused):
        from_json([{"phase": "learn"}])


def test_a_clause_speaks_to_owners_of_data() -> None:
    """One sentence: who sends what, how large, how telling, to whom."""
    assert CLAUSE.sentence() == "learn/fit sends z (K n d) as SYNTHETIC to coordinator and peers: points"
    bare = dataclasses.replace(CLAUSE, dims="", audience=TO_PEERS, doc="")
    assert bare.sentence() == "learn/fit sends z as SYNTHETIC to peers"


# The errors: each with a sentence, each with something to do.
MODULES = (core_errors, archive_errors)


def classes(module: ModuleType) -> dict[str, type[FederationError]]:
    """The errors that a module defines."""
    found = inspect.getmembers(module, inspect.isclass)
    return {n: c for n, c in found if issubclass(c, FederationError) and c.__module__ == module.__name__}


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_every_error_says_when_it_happens(module: ModuleType) -> None:
    """Each class has a sentence of its own."""
    for name, c in classes(module).items():
        assert inspect.cleandoc(c.__dict__.get("__doc__") or "").endswith("."), name


def test_an_error_is_for_a_person_and_for_a_program() -> None:
    """What, what to do, context as data, and a stable name."""
    error = ConfigRefused("rounds is 0", "Correct the value", path="config.rounds")
    assert str(error) == "rounds is 0. Correct the value"
    assert str(FederationError("rounds is 0")) == "rounds is 0"
    assert (error.kind, error.context) == ("ConfigRefused", {"path": "config.rounds"})


# Notes hold what their kind declares, and nothing else fits into them.
NUMBERS = {
    "gpu_seconds": 6.0,
    "cpu_seconds": 7.0,
    "seconds": 2.0,
    "percent": 50.0,
    "tries_left": 1.0,
    "megabytes": 12.0,
    "count": 3.0,
    "rows": 4.0,
    "hours": 5.0,
}
WORDS = {"error": "ValueError", "device": "cuda:1", "way": "behind"}


def whole(kind: str) -> Note:
    """A note with every field of its kind."""
    declared = KINDS[kind]
    return Note(kind, {n: NUMBERS[n] for n in declared.numbers}, {w: WORDS[w] for w in declared.words})


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_makes_a_sentence(kind: str) -> None:
    """All its fields stand in its sentence, and it says when it is told."""
    declared = KINDS[kind]
    assert all(f"{{{name}" in declared.sentence for name in (*declared.numbers, *declared.words))
    assert "{" not in whole(kind).sentence and declared.when


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_field_too_many_or_too_few_is_refused(kind: str) -> None:
    """Beside the declared fields there is no room for anything."""
    good = whole(kind)
    with pytest.raises(Malformed):
        Note(kind, {**good.numbers, "age": 71.0}, good.words)
    with pytest.raises(Malformed):
        Note(kind, good.numbers, {**good.words, "name": "Anna"})
    for numbers in [{k: v for k, v in good.numbers.items() if k != n} for n in good.numbers]:
        with pytest.raises(Malformed):
            Note(kind, numbers, good.words)


def test_an_unknown_kind_is_refused() -> None:
    """Free words have no kind."""
    with pytest.raises(Malformed, match="no note of the kind"):
        Note("the label of row 3 is SECRET")


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1.0, 1e300])
def test_a_number_that_is_none_is_refused(number: float) -> None:
    """Finite, not negative, of a size that means something."""
    with pytest.raises(Malformed):
        Note("trained", {"seconds": number})


@pytest.mark.parametrize("word", ["", "a b", "x" * 65, "ValueError: SECRET", "é", "3rd", "a\nb"])
def test_an_error_is_a_name(word: str) -> None:
    """The name of a class, and no sentence."""
    with pytest.raises(Malformed):
        Note("declined", {}, {"error": word})


@pytest.mark.parametrize("word", ["", "a100 of Anna", "cuda:", "CUDA", "cuda:1234"])
def test_a_device_is_a_device(word: str) -> None:
    """As torch names them."""
    with pytest.raises(Malformed):
        Note("device_missing", {}, {"device": word})


def test_every_error_of_ours_has_a_name_that_fits() -> None:
    """Whatever fails can be told."""
    for kind in family(FederationError):
        assert Note("declined", {}, {"error": kind.__name__}).sentence
