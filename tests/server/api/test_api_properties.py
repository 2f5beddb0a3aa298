"""What the description promises holds for calls that nobody thought of: each alone, and one after the other by their links.

The long form asks a coordinator in a process of its own that has runs of every kind; TIDELINE_LONG=1 gives it ten minutes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from api_world import EXPERIMENT, OWN, Coordinator, locked
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from hypothesis.stateful import run_state_machine_as_test
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
    use_after_free,
)

from tests.acceptance.harness import net
from tests.budgets import examples

PROMISES = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
TOGETHER = [*PROMISES, unsupported_method, use_after_free]
SECONDS = 600.0 if os.environ.get("TIDELINE_LONG") == "1" else 100.0
QUIET = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}


def opened(coordinator: Coordinator) -> Any:
    """The description, with the app behind it."""
    return schemathesis.openapi.from_asgi("/openapi.json", coordinator.app)


def ending(case: Any) -> Any:
    """A call that ends: nobody follows an open run here."""
    if case.operation.path.endswith(("/events", "/changes")):
        case.query = {**dict(case.query or {}), "follow": "false"}
    return case


def asked(case: Any, headers: dict[str, str]) -> None:
    """Make the call and hold the answer against the description."""
    answer = ending(case).call(headers=headers)
    case.validate_response(answer, checks=PROMISES)


def workflow(schema: Any, headers: dict[str, str]) -> Any:
    """The machine that follows the links from call to call."""
    machine = schema.as_state_machine()

    class Workflow(machine):  # type: ignore[misc, valid-type]
        def before_call(self, case: Any) -> None:
            ending(case)

        def get_call_kwargs(self, case: Any) -> dict[str, Any]:
            return {"headers": headers}

        def validate_response(self, response: Any, case: Any, additional_checks: Any = (), **more: Any) -> None:
            case.validate_response(response, checks=TOGETHER)

    return Workflow


@pytest.fixture(scope="module")
def schema() -> Any:
    """A coordinator in this process with a run of its own that has ended, one that is open and one that is cancelled."""
    coordinator = locked()
    runs = [coordinator.post("/runs", EXPERIMENT, headers=OWN).json()["run"] for _ in range(3)]
    coordinator.play(runs[0])
    coordinator.post(f"/runs/{runs[1]}/cancel", headers=OWN)
    return opened(coordinator)


def alone(operation: Any, headers: dict[str, str], number: int) -> None:
    """Calls of one operation: such as the description allows, and such as it does not."""
    for mode in schemathesis.GenerationMode:

        @settings(max_examples=number, phases=[Phase.generate], **QUIET)
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: Any) -> None:
            asked(case, headers)

        with suppress(Unsatisfiable):  # without parameters and body nothing can be wrong
            ask()


@pytest.mark.nightly(job="services")
def test_each_operation_keeps_its_promises(schema: Any) -> None:
    """No failure of ours, and answers as they are declared."""
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) > 15
    for operation in operations:
        alone(operation, OWN, 4)


def test_operations_keep_their_promises_together(schema: Any) -> None:
    """What one answer names, the next call asks for."""
    options = settings(max_examples=examples(6), stateful_step_count=6, phases=[Phase.generate], **QUIET)
    run_state_machine_as_test(workflow(schema, OWN), settings=options)


@pytest.fixture
def real(tmp_path: Path) -> Iterator[tuple[Any, dict[str, str]]]:
    """A coordinator in a process of its own, on SQLite, with runs in it; the key that opens it."""
    with net(tmp_path) as federation:
        federation.coordinator("--rate", "0")
        for name in ("first", "second", "third"):
            run = federation.run(EXPERIMENT | {"name": name})
        federation.client().post(f"/runs/{run}/cancel")
        key = (federation.folder / "admin.key").read_text().strip()
        yield (
            schemathesis.openapi.from_url(f"http://127.0.0.1:{federation.http}/openapi.json"),
            {"Authorization": f"Bearer {key}"},
        )


@pytest.mark.nightly(job="services")
@pytest.mark.processes
@pytest.mark.timeout(SECONDS + 120)
def test_a_real_coordinator_keeps_its_promises(real: tuple[Any, dict[str, str]]) -> None:
    """Calls alone and together, with other seeds each time, until the time is up."""
    there, headers = real
    until, rounds = time.monotonic() + SECONDS, 0
    machine, operations = workflow(there, headers), [found.ok() for found in there.get_all_operations()]
    while time.monotonic() < until or not rounds:
        options = settings(max_examples=10, stateful_step_count=10, phases=[Phase.generate], **QUIET)
        run_state_machine_as_test(machine, settings=options)
        for operation in operations:
            alone(operation, headers, 10)
        rounds += 1
    print(f"{rounds} rounds in {SECONDS:.0f} s")
