"""`tideline links plan`: in this process and at a coordinator, for people, for programs and as a picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.cli.world import Coordinator, assert_refuses, json_of, output_of, refusal_of, tide
from tests.planning.cases import BOUNDS, MEASURED, changed, entry
from tideline.cli.coordinator.links import FLAGS, show_plan, summary
from tideline.cli.guard import DONE, REFUSED, UNREACHABLE
from tideline.planning.links import plan_links

TEXT = """
devices:
  - {name: a, S: 1.0}
  - {name: b, S: 2.0}
  - {name: c, S: 3.0}
T: [[null, 10.0, 20.0], [10.0, null, 8.0], [null, null, null]]
K:
  - [null, 1.0, 1.0]
  - [1.0, null, 2.0]
  - [null, null, null]
pins: [c]
"""


def written(folder: Path, given: Any = BOUNDS, name: str = "devices.json") -> Path:
    path = folder / name
    path.write_text(given if isinstance(given, str) else json.dumps(given))
    return path


def words(text: str) -> list[str]:
    """Lines without the space between their words."""
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def test_a_plan_for_people(tmp_path: Path) -> None:
    """Sources, targets, links with weights and joules, objective, gap, energy; of YAML as of JSON."""
    for path in (written(tmp_path), written(tmp_path, TEXT, "devices.yaml")):
        done = output_of(tide("links", "plan", path))
        lines = words(done)
        assert lines[:2] == ["Sources: a, b", "Targets: c"]
        assert lines[2] == "from to weight joules" and lines[4] == "b c 1.000 2"
        assert lines[5:] == ["Objective: 8.998, the least there is", "Energy: 2 J, 66.7 % of what all links between these take"]


def test_a_plan_for_programs(tmp_path: Path) -> None:
    assert json.loads(output_of(tide("links", "plan", written(tmp_path, MEASURED), "--json"))) == plan_links(MEASURED)


def test_options_take_the_place_of_what_the_file_says(tmp_path: Path) -> None:
    path = written(tmp_path, changed(MEASURED, solver="sca", phi={"energy": 5.0, "source": 6.0}))
    made = json_of(tide("links", "plan", path, "--json", "--solver", "exact", "--phi-energy", "0.5"))
    assert made == plan_links(changed(MEASURED, phi={"energy": 0.5, "source": 6.0}))
    assert "Error: --phi-energy: phi.energy is -1.0" in refusal_of(tide("links", "plan", path, "--phi-energy", "-1"))
    assert "Error: --solver: solver is 'milp'" in tide("links", "plan", path, "--solver", "milp").stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TEXT.replace("S: 2.0", "S: -2.0"), "devices.yaml:4: devices[1].S is -2.0; it should be at least 0 (b)"),
        (TEXT.replace("null, 2.0]", "null, -2]"), "devices.yaml:9: K[1][2] is -2.0; it should be at least 0 (from b to c)"),
        (TEXT.replace("[c]", "[a, b, c]"), "devices.yaml:11: pins: every device has to be a target"),
        (TEXT.replace("pins", "pinned"), "devices.yaml:11: pinned is not a known setting"),
        ("- a\n- b\n", "devices.yaml:1: this is not a request for a plan"),
        ("devices: [", "devices.yaml:1: "),
        ("d: []\n", "devices is missing"),
    ],
)
def test_mistakes_have_their_line(tmp_path: Path, text: str, said: str) -> None:
    assert_refuses(tide("links", "plan", written(tmp_path, text, "devices.yaml")), said, "What to do: ")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert "Name a file that contains a request for a plan" in refusal_of(tide("links", "plan", tmp_path / "none.yaml"))


def test_a_long_file_of_a_program(tmp_path: Path) -> None:
    """More values than people write: planned; a mistake is told by the file's name and the place."""
    N = 110
    devices = [{"name": f"d{i}", "error": 0.5, "count": 1000, "labelled": 800 * (i < 60)} for i in range(N)]
    given = {"devices": devices, "d": [[0.5] * N for _ in range(N)]}
    assert json_of(tide("links", "plan", written(tmp_path, given), "--json"))["status"] == "proven"
    done = tide("links", "plan", written(tmp_path, entry("d", 3, 109, 7.0, given)))
    assert done.exit_code == REFUSED and "devices.json: d[3][109] is 7.0; it should be at most 2 (from d3 to d109)" in done.stderr
    assert "is not a request for a plan" in tide("links", "plan", written(tmp_path, [1] * 20_000)).stderr
    assert "not JSON" in tide("links", "plan", written(tmp_path, "[1," * 20_000)).stderr


def test_a_picture(tmp_path: Path) -> None:
    """A PNG; refused where it cannot be written, or has too many devices."""
    picture = tmp_path / "links.png"
    assert tide("links", "plan", written(tmp_path, MEASURED), "--plot", picture).exit_code == DONE
    with Image.open(picture) as image:
        assert image.format == "PNG" and image.width == 1200
    done = tide("links", "plan", written(tmp_path), "--plot", tmp_path / "no" / "links.png")
    assert done.exit_code == REFUSED and "cannot be written: No such file or directory" in done.stderr
    N = 41
    many = {"devices": [{"name": f"d{i}", "S": 1.0} for i in range(N)], "T": [[9.0] * N] * N}
    done = tide("links", "plan", written(tmp_path, many), "--plot", picture)
    assert done.exit_code == REFUSED and "--plot draws 40 devices at most; there are 41" in done.stderr


def test_the_coordinator_plans_the_same(there: Coordinator, tmp_path: Path) -> None:
    path = written(tmp_path, changed(MEASURED, sweep=[0.1, 10.0]))
    here, away = (tide("links", "plan", path, "--json", *more) for more in ((), ("--coordinator", "--home", there.home)))
    assert here.exit_code == away.exit_code == DONE and json.loads(here.stdout) == json.loads(away.stdout)
    done = tide("links", "plan", written(tmp_path, TEXT + "seconds: 30\n", "long.yaml"), "--coordinator", "--home", there.home)
    assert done.exit_code == REFUSED and "long.yaml:12: seconds is 30; a coordinator searches for 20 at most" in done.stderr


def test_a_coordinator_that_is_not_there(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert tide("links", "plan", path, "--coordinator", "--home", tmp_path / "none").exit_code == UNREACHABLE
    assert tide("links", "plan", path, "--home", tmp_path / "none").exit_code == DONE


def test_how_a_search_ended_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    made = plan_links(MEASURED)
    cut = made | {"status": "limit", "bound": 0.9 * made["objective"], "gap": 0.1}
    assert summary(cut).startswith(f"Objective: {made['objective']:.6g}, found when the time was up; no plan has less than ")
    assert "a gap of 10 %\n" in summary(cut)
    assert "after 17 iterations, which had settled\n" in summary(made | {"status": "converged", "iterations": 17})
    spread = plan_links(MEASURED | {"weights": "power"})
    assert "; no plan has less than" in summary(spread) and "the least there is" not in summary(spread)
    show_plan(made | {"flags": [*FLAGS, "<odd>\n"], "alpha": []})
    out = capsys.readouterr().out
    assert all(f"Note: {said}" in out for said in FLAGS.values()) and "Note: <odd> \n" in out and "weight" not in out
