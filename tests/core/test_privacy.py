"""The contract: what it says, what a site may refuse, and when two of them are the same."""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tideline.core.errors import ContractRefused
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
    assert len(digests) == 4
    assert set(CHANGES) == {f.name for f in dataclasses.fields(Clause)} - {"doc"}


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
