"""Whatever JSON is sent, the answer is a success or a refusal in the one shape."""

from __future__ import annotations

import json
from typing import Any

import pytest
from api_world import EXPERIMENT, JSON, Coordinator, refused
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.budgets import examples
from tideline.core.settings import plain
from tideline.engine.model.experiment import Experiment

FUZZ = settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
)
# Bodies that are nearly right reach further: a good experiment with any one value replaced.
FIELDS = sorted(plain(Experiment("fedavg")))
nearly = st.builds(lambda name, value: EXPERIMENT | {name: value}, st.sampled_from(FIELDS), anything)
small = (
    st.integers(-3, 40)
    | scalars.filter(lambda v: not isinstance(v, int) or isinstance(v, bool))
    | st.lists(st.integers(-1, 9), max_size=3)
)
WITHIN = {
    "config": ("rounds", "epochs", "batch", "rate", "momentum", "weighting", "evaluate_every", "roles"),
    "world": ("inputs", "classes", "model", "sizes", "class_names"),
    "waiting": ("target_replies", "min_replies", "deadline"),
    "reference": ("method", "roles", "config"),
}
within = st.one_of(
    *(
        st.builds(lambda k, n, v: EXPERIMENT | {k: {n: v}}, st.just(k), st.sampled_from(names), small)
        for k, names in WITHIN.items()
    )
)
invitations = anything | st.fixed_dictionaries({}, optional={"name": anything, "labels": anything, "ttl_seconds": scalars})


@pytest.fixture(scope="module")
def target() -> Coordinator:
    """One coordinator that takes all the blows."""
    return Coordinator()


def knock(coordinator: Coordinator, path: str, body: Any, more: Any = None) -> None:
    """Send a body as Python writes it (NaN and all); nothing but success or the one shape may come back."""

    content = json.dumps(body).encode()
    answer = coordinator.post(path, content=content, headers=JSON | (more or {}))
    if answer.status_code != 201:
        error = answer.json()
        refused(answer, answer.status_code, error["kind"], error["path"])
        assert 400 <= answer.status_code < 500, answer.text


@FUZZ
@given(body=anything | nearly | within)
def test_any_experiment_is_started_or_refused(target: Coordinator, body: Any) -> None:
    """POST /runs never fails in an unexpected way."""
    knock(target, "/runs", body)


@FUZZ
@given(
    body=nearly | invitations,
    key=st.binary(max_size=8) | st.sampled_from([b"a", b"b"]),
    path=st.sampled_from(["/runs", "/invites"]),
)
def test_any_key_is_taken_or_refused(target: Coordinator, body: Any, key: bytes, path: str) -> None:
    """A header of any bytes, with any body, never makes a call fail in an unexpected way."""
    knock(target, path, body, {"Idempotency-Key": key})


@FUZZ
@given(body=invitations)
def test_any_invitation_is_made_or_refused(target: Coordinator, body: Any) -> None:
    """POST /invites never fails in an unexpected way."""
    knock(target, "/invites", body)


@FUZZ
@given(body=st.binary(max_size=64))
def test_any_bytes_are_answered(target: Coordinator, body: bytes) -> None:
    """Bytes that are no JSON at all are refused in the one shape."""
    answer = target.post("/runs", content=body, headers=JSON)
    assert 400 <= answer.status_code < 500 and answer.json()["type"].startswith("urn:tideline:error:")
