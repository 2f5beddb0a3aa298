"""What a plan is asked with: every mistake has its place, and the name of the device."""

from __future__ import annotations

from typing import Any

import pytest

from tests.planning.cases import BOUNDS, MEASURED, changed, device, entry, powered
from tideline.core.errors import ConfigRefused
from tideline.core.settings import plain
from tideline.planning.request import MOST, MOST_SWEPT, read_links


def refused(given: Any) -> ConfigRefused:
    with pytest.raises(ConfigRefused) as caught:
        read_links(given)
    assert caught.value.todo
    return caught.value


@pytest.mark.parametrize("given", [MEASURED, BOUNDS, powered(), changed(MEASURED, K=None), entry("d", 0, 0, None)])
def test_a_good_question_is_read(given: dict[str, Any]) -> None:
    """From measurements or bounds, with joules, with watts, or without energy; the same again from its own plain data."""
    asked = read_links(given)
    assert read_links(plain(asked)) == asked


def test_who_is_pinned() -> None:
    assert read_links(changed(MEASURED, pins=["bert"])).pinned == (False, True, True, True)
    assert read_links(BOUNDS).pinned == (False, False, True)
    assert read_links(device(1, BOUNDS, labelled=0)).pinned == (False, True, True)


@pytest.mark.parametrize(
    ("given", "path", "said"),
    [
        (device(1, error=1.5), "devices[1].error", "is 1.5; it should be at most 1 (bert)"),
        (device(1, error="low"), "devices[1].error", "should be a number (bert)"),
        (device(1, errors=0.5), "devices[1].errors", "(bert)"),
        (device(2, count=0), "devices[2].count", "(carl)"),
        (device(2, labelled=None), "devices[2].labelled", "is missing (carl)"),
        (device(0, error=None), "devices[0].error", "is missing (anna)"),
        (device(0, S=1.0), "devices[0].error", "is given beside S of the devices (anna)"),
        (device(3, S=1.0), "devices[3].S", "(dora)"),
        (device(1, BOUNDS, S=None, error=0.5), "devices[1].S", "(b)"),
        (device(1, BOUNDS, count=5), "devices[1].count", "(b)"),
        (device(3, watts=0.2), "devices[3].watts", "(dora)"),
        (device(0, powered(), watts=None), "devices[0].watts", "is missing (anna)"),
        (entry("d", 1, 3, 2.5), "d[1][3]", "(from bert to dora)"),
        (entry("K", 0, 2, -1.0), "K[0][2]", "(from anna to carl)"),
        (entry("K", 0, 2, True), "K[0][2]", "(from anna to carl)"),
        (device(1, name="anna"), "devices[1].name", "is another's (anna)"),
    ],
)
def test_a_mistake_has_its_place_and_a_name(given: dict[str, Any], path: str, said: str) -> None:
    error = refused(given)
    assert error.context["path"] == path and said in error.what
    assert error.context["devices"]


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({}, "devices"),
        ([], ""),
        (changed(MEASURED, devices=MEASURED["devices"][:1]), "devices"),
        (changed(MEASURED, devices="anna"), "devices"),
        (changed(MEASURED, devices=[1, 2]), "devices[0]"),
        (changed(MEASURED, d=None), "d"),
        (changed(MEASURED, d=MEASURED["d"][:3]), "d"),
        (changed(MEASURED, d=[*MEASURED["d"][:3], [1.0]]), "d[3]"),
        (changed(MEASURED, T=MEASURED["d"]), "d"),
        (changed(BOUNDS, T=None), "T"),
        (changed(powered(), K=MEASURED["K"]), "rates"),
        (changed(MEASURED, pins=["eve"]), "pins[0]"),
        (changed(MEASURED, sweep=[1.0] * (MOST_SWEPT + 1)), "sweep"),
        (changed(MEASURED, phi={"energy": -1.0}), "phi.energy"),
        (changed(MEASURED, phi={"source": float("inf")}), "phi.source"),
        (changed(MEASURED, solver="milp"), "solver"),
        (changed(MEASURED, divergence_scale=10.0), "divergence_scale"),
        (changed(MEASURED, delta=1.0), "delta"),
        (changed(MEASURED, seconds=0.0), "seconds"),
        (changed(MEASURED, other=1), "other"),
        (device(2, name=""), "devices[2].name"),
        (device(2, name="a\nb"), "devices[2].name"),
        (device(2, name="x" * 81), "devices[2].name"),
    ],
)
def test_what_is_no_question(given: Any, path: str) -> None:
    assert refused(given).context["path"] == path


@pytest.mark.parametrize("solver", MOST)
def test_more_devices_than_a_solver_takes(solver: str) -> None:
    """What the approximation is too slow for, the exact solver may take."""
    N = MOST[solver] + 1
    devices = [{"name": f"d{i}", "S": 1.0} for i in range(N)]
    given = {"devices": devices, "T": [[1.0] * N] * N, "solver": solver}
    error = refused(given)
    assert error.context["path"] == "devices" and str(N) in error.what
    assert ("use the solver exact" in error.todo) == (solver == "sca")
