"""POST /links/plan: a plan for whoever may look, without a run, an entry or a key's record; mistakes have their place."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from api_world import JSON, OWN, Coordinator, locked, refused
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.budgets import examples
from tests.planning.cases import BOUNDS, MEASURED, changed, device, entry
from tideline.core.errors import Unreachable
from tideline.planning.links import plan_links
from tideline_server.api.models import LinkPlan
from tideline_server.api.openapi import LINK_PLANS

FUZZ = settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def door() -> Coordinator:
    """A coordinator that is only asked."""
    return Coordinator()


def test_the_manuals_examples_are_planned(door: Coordinator, subtests: pytest.Subtests) -> None:
    """Each of them, and the answer is what the description says."""
    for name, example in LINK_PLANS.items():
        with subtests.test(name):
            answer = door.post("/links/plan", example["value"])
            assert answer.status_code == 200, answer.text
            made = LinkPlan.model_validate_json(answer.content)
            assert made.alpha and made.status == "proven" and set(made.psi.values()) == {"source", "target"}
            assert set(answer.json()) == set(LinkPlan.model_fields)


def test_it_is_the_plan_of_the_formulas(door: Coordinator) -> None:
    """Nothing is added on the way."""
    for asked in (MEASURED, BOUNDS, changed(MEASURED, weights="power", sweep=[0.1, 10.0])):
        assert door.post("/links/plan", asked).json() == plan_links(asked)


def test_mistakes_have_their_place(door: Coordinator) -> None:
    """422, with the path and the names of the devices."""
    told = refused(door.post("/links/plan", device(2, error=1.5)), 422, "ConfigRefused", "devices[2].error")
    assert told["context"]["devices"] == ["carl"] and "carl" in told["detail"]
    told = refused(door.post("/links/plan", entry("d", 1, 3, 3.0)), 422, "ConfigRefused", "d[1][3]")
    assert told["context"]["devices"] == ["bert", "dora"] and "from bert to dora" in told["detail"]
    refused(door.post("/links/plan", changed(MEASURED, pins=["anna", "bert"])), 422, "ConfigRefused", "pins")
    refused(door.post("/links/plan", changed(MEASURED, seconds=21.0)), 422, "ConfigRefused", "seconds")
    refused(door.post("/links/plan", content=b'{"devices": NaN}', headers=JSON), 400, "Malformed")


def test_whoever_may_look_may_plan_and_nothing_is_kept() -> None:
    """A viewer's key opens it. No run, no entry in the audit log; a key of the call is not looked at, and names no record."""
    door = locked()
    eve = door.add_key("eve", "viewer") | {"Idempotency-Key": "the same"}
    before = door.get("/audit/tip", headers=OWN).json()
    first, other = door.post("/links/plan", MEASURED, headers=eve), door.post("/links/plan", BOUNDS, headers=eve)
    assert (first.status_code, other.status_code) == (200, 200) and first.json() != other.json()
    assert "Idempotent-Replayed" not in first.headers
    assert door.get("/audit/tip", headers=OWN).json() == before and door.get("/runs", headers=OWN).json() == []
    refused(door.post("/links/plan", MEASURED), 401, "IdentityRefused")


def test_who_is_one_too_many_is_told_when_to_come_back() -> None:
    """503 with Retry-After, and no plan."""

    def full(asked: Any) -> dict[str, Any]:
        raise Unreachable("As many plans are being made as there is room for", "Ask again in 2 s", retry_after=2)

    answer = Coordinator(plan=full).post("/links/plan", MEASURED)
    refused(answer, 503, "Unreachable")
    assert answer.headers["Retry-After"] == "2"


def test_others_are_answered_while_a_plan_is_made() -> None:
    """A plan is made on a thread: the loop goes on. It ends only once the other call was answered."""
    answered = anyio.Event()

    def slow(asked: Any) -> dict[str, Any]:
        anyio.from_thread.run(answered.wait)
        return plan_links(asked)

    async def main() -> None:
        door = Coordinator(plan=slow)
        async with anyio.create_task_group() as group:
            group.start_soon(plan, door)
            assert (await door.asend("GET", "/health")).status_code == 200
            answered.set()

    async def plan(door: Coordinator) -> None:
        assert (await door.asend("POST", "/links/plan", json=MEASURED)).status_code == 200

    anyio.run(main)


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6)
keys = sorted({*MEASURED, "T", "rates", "phi", "pins", "sweep", "seconds", "weights", "exponent", "delta", "energy_mode"})
small = st.floats(0, 3) | st.integers(0, 5) | scalars
nearly = st.one_of(
    st.builds(lambda k, v: MEASURED | {k: v}, st.sampled_from(keys), scalars | st.lists(st.lists(small, max_size=4), max_size=4)),
    st.builds(
        lambda i, k, v: device(i, **{k: v}),
        st.integers(0, 3),
        st.sampled_from(["name", "error", "count", "labelled", "watts"]),
        small,
    ),
    st.builds(lambda k, i, j, v: entry(k, i, j, v), st.sampled_from(["d", "K"]), st.integers(0, 3), st.integers(0, 3), small),
    st.builds(lambda i, j, v: entry("T", i, j, v, BOUNDS), st.integers(0, 2), st.integers(0, 2), st.floats(0, 1e9) | small),
    st.builds(lambda s, t, e: BOUNDS | {"phi": {"source": s, "target": t, "energy": e}}, *[st.floats(0, 1e9) | small] * 3),
)


@FUZZ
@given(body=scalars | nearly)
def test_any_question_is_answered_or_refused(door: Coordinator, body: Any) -> None:
    """Success with plain numbers, or a refusal in the one shape."""
    answer = door.post("/links/plan", content=json.dumps(body).encode(), headers=JSON)
    if answer.status_code == 200:
        made = LinkPlan.model_validate_json(answer.content)
        assert made.bound <= made.objective and all(0 < link.weight <= 1 + 1e-9 for link in made.alpha)
    else:
        error = answer.json()
        refused(answer, answer.status_code, error["kind"], error["path"])
        assert 400 <= answer.status_code < 500, answer.text
