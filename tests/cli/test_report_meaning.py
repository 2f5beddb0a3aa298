"""What a report says first: what was trained, what it reached, whether adaptation paid, and how the baselines did."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import pytest

from tests.cli.echo import told
from tests.cli.test_graphs import WEIGHT, weights
from tests.cli.test_graphs import told as with_tables
from tests.cli.test_report import client, headings, page, result, words
from tideline.report.charts import Band, Curves, accuracy_charts
from tideline.report.figures import charts, png
from tideline.report.meaning import gain, held_to, wilson
from tideline.report.page import basis, pictured
from tideline.report.tables.methods import lines, mean_gain, methods_table


def score(value: float, rows: int) -> dict[str, Any]:
    of = wilson(value, rows)
    return {"accuracy": {"value": of.value, "low": of.low, "high": of.high, "rows": rows}}


def head(made: dict[str, Any], folder: Path) -> str:
    return " ".join(words(page(made, folder).split("<h2>")[0]).split())


def test_an_interval_is_wilsons() -> None:
    """As tables have it for 10 of 20; a gain's ends are those of Newcombe's example, 56 of 70 and 48 of 80."""
    assert (wilson(0.5, 20).low, wilson(0.5, 20).high) == pytest.approx((0.2993, 0.7007), abs=1e-4)
    of = gain(wilson(56 / 70, 70), wilson(48 / 80, 80))
    assert (of.value, of.low, of.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=1e-4)


@pytest.mark.parametrize(
    ("accuracy", "before", "said"),
    [
        (0.9, 0.5, "Adaptation paid at bert: +40.0 points (95 % interval +"),
        (0.5, 0.9, "Negative transfer at bert: adaptation did harm, -40.0 points"),
        (0.52, 0.5, "Whether adaptation paid at bert is open: +2.0 points"),
    ],
)
def test_the_head_says_whether_adaptation_paid(accuracy: float, before: float, said: str, tmp_path: Path) -> None:
    """Paid, did harm, or open where the interval holds zero; with the interval and n of what was reached."""
    made = result([client("anna", "source"), client("bert", "target", accuracy=accuracy, source_only=before)])
    text = head(made | {"scores": {"bert": score(accuracy, 100)}}, tmp_path)
    assert "fedavg trained in 2 rounds at 1 site with labels (anna), for 1 target (bert)" in text
    assert said in text and "n = 100 rows" in text


def test_the_head_says_what_cannot_be_said(tmp_path: Path) -> None:
    """Without a number of rows there is no interval, without source-only nothing to compare with; a failed run is called so."""
    target = client("bert", "target")
    assert "the number of held-out rows is not known" in head(result([target]), tmp_path)
    assert "no model of the labelled sites alone was scored" in head(result([target | {"source_only": None}]), tmp_path)
    assert "It has not come to its end: it is failed." in head(result([target], status="failed", cause="<no>"), tmp_path)


def test_many_targets_are_counted(tmp_path: Path) -> None:
    """Of fifty sites there is one sentence of what was reached and one of what it was worth."""
    many = [client(f"<s{i}>", "target", accuracy=0.9 if i else 0.1) for i in range(50)]
    made = result(many) | {"scores": {c["name"]: score(c["accuracy"], 200) for c in many}}
    text = head(made, tmp_path)
    assert "At 50 of 50 targets on average 88.4 %" in text and "at single targets 10.0 % to 90.0 %" in text
    assert "adaptation paid at 49 of 50 targets, did harm (negative transfer) at 1, and is open at 0" in text


def test_every_chart_has_n_and_a_unit(tmp_path: Path) -> None:
    for made in (told(), with_tables(**{WEIGHT: weights("ab", ab=1.0)})):
        text = page(made, tmp_path)
        for chart in charts(made):
            assert basis(chart).startswith("n = ") and "unit: " in basis(chart) and escape(basis(chart)) in text


def test_two_points_are_a_table(tmp_path: Path) -> None:
    """Accuracies of two rounds have no curve; those of three have one."""
    made = result([client("anna", "source"), client("bert", "target")])
    assert "<figure>" not in page(made, tmp_path)
    made["curve"] = [{"client": "anna", "round": r, "accuracy": 0.1 * r} for r in (1, 2, 3)]
    assert "<figure>" in page(made, tmp_path)


@pytest.mark.parametrize(("a", "b", "drawn"), [(0.5, 0.5, False), (0.51, 0.49, False), (0.7, 0.3, True), (1.0, 0.0, True)])
def test_weights_that_are_alike_are_a_sentence(a: float, b: float, drawn: bool, tmp_path: Path) -> None:
    """Arrows only where weights differ, or where not every source sends."""
    table = {"rows": ["a", "b"], "columns": ["c"], "values": [[a], [b]], "drawn": "graph"}
    made = with_tables(**{WEIGHT: table})
    (chart,) = [each for each in charts(made) if WEIGHT in each.title]
    assert pictured(chart) is drawn
    assert ("all 2 senders weigh about the same, 0.50" in page(made, tmp_path)) is not drawn


def test_internals_are_folded(tmp_path: Path) -> None:
    """What explains a run is below Details and opens by its heading; all on paper."""
    text = page(told(), tmp_path)
    inner = headings(text)[headings(text).index("Details") + 1 :]
    assert inner and all(f"<summary><h2>{each}</h2></summary>" in text for each in inner)
    assert "@media print" in text and "content-visibility: visible" in text


@pytest.mark.parametrize(("found", "where"), [(0.5, "below"), (0.9, "within"), (0.99, "above")])
def test_a_rehearsal_is_held_to_what_it_let_expect(found: float, where: str) -> None:
    """Below, within or above its band; nothing is said of a target without a band or without a score."""
    band = {"value": 0.9, "low": 0.85, "high": 0.95}
    target = {"name": "bert", "chosen": {"shot": 1.0}, "gain": None, "trust": "rehearsed"}
    made: Any = result([client("bert", "target", accuracy=found)]) | {"verdict": {"targets": [target | {"accuracy": band}]}}
    ((kind, said),) = held_to(made)
    assert (
        said.replace("\u00a0", " ") == f"The rehearsal let expect 85.0 % to 95.0 % at bert: {100 * found:.1f} % is {where} that."
    )
    assert (kind == "bad") is (where == "below")
    for other in (target | {"accuracy": None}, target | {"accuracy": band, "name": "carl"}):
        assert not [*held_to(made | {"verdict": {"targets": [other]}})]


def test_peers_are_called_peers(tmp_path: Path) -> None:
    assert "trained in 2 rounds at 2 peers (anna, bert)." in head(result([client(n, "peer") for n in ("anna", "bert")]), tmp_path)


def test_what_a_rehearsal_expected_is_drawn_behind_the_curve(tmp_path: Path) -> None:
    """For up to three targets; of sites that were not scored, or not rehearsed, there is none."""

    def made(names: Sequence[str], band: Any) -> Any:
        of = result([client("anna", "source"), *(client(name, "target") for name in names)])
        return of | {"verdict": {"targets": [{"name": name, "accuracy": band} for name in (*names, "nobody")]}}

    band = {"value": 0.5, "low": 0.4, "high": 0.6}
    (chart,) = accuracy_charts(made(["bert"], band))
    assert isinstance(chart, Curves) and chart.bands == (Band("bert", 0.4, 0.6),)
    assert chart.seen().endswith("A band shows what the rehearsal let expect.")
    plain = replace(chart, bands=())
    assert "band" not in plain.seen() and png(chart) != png(plain)
    for names, given in ((["bert"], None), (["a", "b", "c", "d"], band)):
        (other,) = accuracy_charts(made(names, given))
        assert isinstance(other, Curves) and other.bands == ()


TITLE = "The method and its baselines"


def adapted(*targets: dict[str, Any], rows: int | None = 100, **more: Any) -> dict[str, Any]:
    """A result of these targets, scored on so many rows each."""
    scores = {each["name"]: score(each["accuracy"], rows) for each in targets if each["accuracy"] is not None} if rows else {}
    return result([client("anna", "source"), *targets], **more) | {"scores": scores}


def table(made: dict[str, Any], folder: Path) -> list[str]:
    text = page(made, folder).partition(f"<h2>{TITLE}</h2>")[2].partition("</table>")[0].partition("</thead>")[2]
    return [" ".join(words(each).split()) for each in text.split("</tr>") if each.strip()]


def test_methods_are_listed_best_first(tmp_path: Path) -> None:
    """This run, source-only, and whatever else its targets told; with intervals, and what they are above source-only."""
    target = client("bert", "target", accuracy=0.6, source_only=0.4, metrics={"accuracy_alone": 0.7})
    made = adapted(target)
    assert headings(page(made, tmp_path))[0] == TITLE, "after what it means, before all else"
    found = table(made, tmp_path)
    assert [each.split(" ")[0] for each in found] == ["accuracy_alone", "fedavg,", "source-only:"]
    own, gained = wilson(0.6, 100), gain(wilson(0.6, 100), wilson(0.4, 100))
    assert f"60.0 % ({100 * own.low:.1f}–{100 * own.high:.1f})" in found[1]
    assert f"+20.0 points ({100 * gained.low:+.1f} to {100 * gained.high:+.1f})" in found[1]
    assert found[2].endswith("40.0 % –")


def test_errors_of_several_targets_are_independent() -> None:
    """The interval of a mean gain over four equal targets is half as wide as that of one."""
    targets = [client(name, "target", accuracy=0.6, source_only=0.4) for name in ("b", "c", "d", "e")]
    made: Any = adapted(*targets)
    one, four = (mean_gain(made, targets[:n], [0.6] * n) for n in (1, 4))  # type: ignore[arg-type]
    assert one is not None and four is not None
    assert math.isclose(four.high - four.low, (one.high - one.low) / 2) and four.value == pytest.approx(one.value)


def test_without_a_number_of_rows_there_is_no_interval(tmp_path: Path) -> None:
    found = table(adapted(client("bert", "target", accuracy=0.6, source_only=0.4), rows=None), tmp_path)
    assert found == ["fedavg, this run 60.0 % 60.0 % –", "source-only: labelled sites alone, not adapted 40.0 % 40.0 % –"]


def test_without_a_baseline_there_is_no_table(tmp_path: Path) -> None:
    """Nor of a run without targets; a metric that one of the targets lacks has no mean, and is left out."""
    for made in (
        adapted(client("bert", "target", accuracy=0.6, source_only=None)),
        adapted(client("bert", "target", accuracy=None, source_only=0.4)),
        adapted(),
    ):
        assert methods_table(made) == ""  # type: ignore[arg-type]
    some = [client("b", "target", metrics={"accuracy_alone": 0.7}), client("c", "target")]
    assert {line.metric for line in lines(adapted(*some), some)} == {"accuracy", "source_only"}  # type: ignore[arg-type]


def test_many_targets_are_a_mean(tmp_path: Path) -> None:
    """Names become no markup, and of fifty targets there are no fifty columns."""
    many = [client(f"<b{i}>", "target", accuracy=0.6, source_only=0.4) for i in range(50)]
    assert all(each.count("%") == 1 for each in table(adapted(*many), tmp_path))
    text = page(adapted(*many[:2], method="<i>"), tmp_path)
    assert "<b0>" not in text and "<i>, this run" not in text
