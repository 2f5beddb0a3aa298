"""How sure predictions were: from a run that tells it to the charts, the table and the files."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.cli.test_report import client, headings, page, result, words
from tests.synthetic import HELD_OUT, NAMES, experiment, sites
from tideline.algorithms import METHODS
from tideline.core.phase import RIGHT, WRONG
from tideline.engine.simulation.federation import simulate
from tideline.learning.evaluate import BIN_NAMES
from tideline.numerics.labels import confidence as numerics
from tideline.report.confidences import BINS, Confidences, calibration, confidences
from tideline.report.figures import charts, figure_of, png, write_figures
from tideline.report.fold_tables import table_charts

ROSTER = {"anna": "source", "bert": "source", "carl": "target"}
Counts = dict[str, tuple[list[int], list[int]]]


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """The result of a run that tells confidences."""
    return simulate(METHODS, experiment("fedavg", ROSTER, config={"confidence": True}), sites(NAMES[:3]))


def bins(*at: tuple[int, int]) -> list[int]:
    return [dict(at).get(b, 0) for b in range(BINS)]


def scoring(counts: Counts, number: int = 1, phase: str = "score", columns: tuple[str, ...] = BIN_NAMES) -> dict[str, Any]:
    """A closed round that told these, right and wrong."""
    tables = {
        name: {"rows": list(counts), "columns": list(columns), "values": [each[side] for each in counts.values()]}
        for side, name in enumerate((RIGHT, WRONG))
    }
    return {"name": phase, "round": number, "groups": {}, "marks": {}, "asked": 0, "tables": tables}


def fabricated(*rounds: dict[str, Any], roles: dict[str, str] | None = None, **changed: Any) -> dict[str, Any]:
    clients = [client(name, role, metrics={"ece": 0.125}) for name, role in (roles or ROSTER).items()]
    return result(clients, phases=list(rounds), groups=None, notes=[], **changed)


ONE: Counts = {"anna": (bins((19, 6), (10, 2)), bins((10, 2))), "carl": (bins((19, 1)), bins((19, 3)))}


def test_the_bins_are_those_of_the_scoring() -> None:
    """Reports know how many there are without the numerics, which load torch."""
    assert len(BIN_NAMES) == BINS == numerics.BINS


def test_reports_load_no_torch() -> None:
    code = "import sys, tideline.report.page, tideline.report.figures; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_run_that_tells_confidences(told: dict[str, Any], tmp_path: Path) -> None:
    """The sites together and the unseen target, the calibration error of each, and no heat map of the two tables."""
    own, unseen = confidences(told)
    assert (own.name, own.predictions) == ("confidence-sites", 2 * HELD_OUT)
    assert own.title == "Confidence on the held-out rows of 2 sites"
    assert (unseen.name, unseen.title) == ("confidence-targets", "Confidence on the held-out rows of 1 unseen target")
    assert unseen.predictions == HELD_OUT and sum(unseen.right) / HELD_OUT == told["clients"][2]["accuracy"]
    found = calibration(told)
    assert found is not None
    assert [(c.site, c.role, c.predictions) for c in found.rows] == [(name, role, HELD_OUT) for name, role in ROSTER.items()]
    for each, line in zip(found.rows, told["clients"], strict=True):
        assert (each.right, each.error) == (line["accuracy"], line["metrics"]["ece"])
    assert all(name.startswith("confusion of ") for name, _ in table_charts(told)) and {own, unseen} <= set(charts(told))
    text = page(told, tmp_path)
    assert "Confidence" in headings(text)
    section = " ".join(words(text.split("<h2>Confidence</h2>")[1].split("<h2>")[0]).split())
    assert f"carl target {HELD_OUT} {100 * unseen.predictions * told['clients'][2]['accuracy'] / HELD_OUT:.1f} %" in section
    assert f"{told['clients'][2]['metrics']['ece']:.3f}" in section
    assert "in-distribution (mean of 2 sites' own held-out rows):" in " ".join(words(text).split())


def test_shares_of_the_rows_of_several_sites() -> None:
    more = ONE | {"bert": (bins((19, 2)), bins((0, 8)))}
    own, targets = confidences(fabricated(scoring(more)))
    assert (own.right, own.wrong) == (tuple(bins((19, 8), (10, 2))), tuple(bins((10, 2), (0, 8))))
    assert own.shares(own.right)[19] == 8 / 20 and own.top == targets.top == 0.75
    assert targets.title == "Confidence on the held-out rows of 1 target", "whether it is unseen is not known"
    assert own.seen() == (
        "Confidence on the held-out rows of 2 sites: two bars for each range of confidence, right ones and wrong ones."
        " Of 20 predictions 50.0\u00a0% are right; of the 8 with a confidence above 0.95, 100.0\u00a0%."
    )


def test_the_last_round_counts() -> None:
    """Of each phase the last that told them; of a site that two phases scored, the later."""
    late: Counts = {"anna": (bins((5, 7)), bins())}
    (own, _) = confidences(fabricated(scoring(ONE), scoring(ONE | late, 2)))
    assert own.right == tuple(bins((5, 7))) and sum(own.wrong) == 0
    (own, targets) = confidences(fabricated(scoring(ONE, phase="first"), scoring(late, phase="then")))
    assert own.right == tuple(bins((5, 7))) and targets.predictions == 4
    (own, _) = confidences(fabricated(scoring(late, phase="a"), scoring(ONE, phase="b"), scoring(late, 2, phase="a")))
    assert own.right == tuple(bins((5, 7)))


def test_what_is_not_told_is_not_drawn() -> None:
    """No section of one group, nor of sites without rows; without a calibration error a dash."""
    (own,) = confidences(fabricated(scoring({"anna": ONE["anna"], "carl": (bins(), bins())})))
    assert own.name == "confidence-sites"
    assert confidences(fabricated()) == () and calibration(fabricated()) is None
    assert confidences(fabricated(scoring({"carl": (bins(), bins())}))) == ()
    made = fabricated(scoring(ONE))
    for line in made["clients"]:
        line["metrics"] = {}
    found = calibration(made)
    assert found is not None and [each.error for each in found.rows] == [None, None]


def test_other_tables_of_these_names_are_heat_maps() -> None:
    """Draw as confidences only the two tables together, of the same sites and with all bins."""
    alone, other_sites, other_bins = scoring(ONE), scoring(ONE), scoring(ONE)
    del alone["tables"][WRONG]
    other_sites["tables"][WRONG]["rows"] = ["anna", "bert"]
    other_bins["tables"][WRONG]["columns"] = [f"b{b}" for b in range(BINS)]
    for closed in (alone, other_sites, other_bins, scoring({"anna": ([1, 2], [3, 4])}, columns=("low", "high"))):
        made = fabricated(closed)
        assert confidences(made) == () and table_charts(made)[0][0] == f"{RIGHT} in phase score"


def test_the_numbers_behind_them(tmp_path: Path) -> None:
    """A picture and a file for each group, and a file alone for the sites' calibration."""
    made = fabricated(scoring(ONE), scoring(ONE, 2))
    names = {path.name for path in write_figures(made, tmp_path)}
    assert {"confidence-sites.png", "confidence-targets.csv", "calibration.csv"} <= names and "calibration.png" not in names
    assert not any("predictions" in name for name in names)
    head, *rows = csv.reader(io.StringIO((tmp_path / "confidence-targets.csv").read_text()))
    assert head == ["confidence_from", "confidence_to", "right", "wrong", "right_count", "wrong_count"]
    assert len(rows) == BINS and rows[-1] == ["0.95", "1.0", "0.25", "0.75", "1", "3"]
    head, *told = (tmp_path / "calibration.csv").read_text().splitlines()
    assert head == "site,role,predictions,right,ece" and told == ["anna,source,10,0.8,0.125", "carl,target,4,0.25,0.125"]


def test_a_picture_of_confidences() -> None:
    """Two bars a bin, side by side, in percent; one size whatever is in it."""
    (own, targets) = confidences(fabricated(scoring(ONE)))
    (axes,) = figure_of(targets).axes
    assert len(axes.patches) == 2 * BINS and axes.get_ylim() == pytest.approx((0, 1.05 * 75))
    assert sorted(bar.get_height() for bar in axes.patches)[-2:] == pytest.approx([25, 75])
    pairs = zip(axes.patches[:BINS], axes.patches[BINS:], strict=True)
    assert all(right.get_x() + right.get_width() <= wrong.get_x() + 1e-9 for right, wrong in pairs)
    sizes = {Image.open(io.BytesIO(png(each))).size for each in (own, targets)}
    assert len(sizes) == 1 and next(iter(sizes))[0] == 1200
    (legend,) = figure_of(own).legends
    assert [text.get_text() for text in legend.get_texts()] == ["right", "wrong"]


def test_targets_are_called_unseen_where_all_are() -> None:
    roles = {"anna": "source", "carl": "target", "dora": "target"}
    counts = dict.fromkeys(roles, ONE["carl"])
    means = {"id": {"accuracy": 0.5, "sites": 1}, "ood": {"accuracy": 0.5, "sites": 1}}
    titles = []
    for sites_ in (1, 2):
        known = {"id": means["id"], "ood": means["ood"] | {"sites": sites_}}
        titles.append(confidences(fabricated(scoring(counts), roles=roles, generalization=known))[1].title)
    assert titles == [f"Confidence on the held-out rows of 2 {kind}targets" for kind in ("", "unseen ")]


@pytest.mark.parametrize("n", [1, 3, 10, 30])
def test_however_many_sites_there_are(n: int, tmp_path: Path) -> None:
    roles = {f"<site-{i}>": "target" if i == n - 1 else "source" for i in range(n)}
    made = fabricated(scoring(dict.fromkeys(roles, ONE["anna"])), roles=roles)
    text = page(made, tmp_path)
    section = text.split("<h2>Confidence</h2>")[1].split("<h2>")[0]
    sites = section.split("</figure>")[-1]
    assert section.count("<figure>") == min(n, 2) and sites.count("<tr") == n + 1 and "<site" not in text
    assert all(isinstance(each, Confidences) for each in confidences(made))
