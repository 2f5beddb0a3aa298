"""The table of the report that has the method beside its baselines."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_report import client, headings, page, result, words
from tests.cli.test_report_meaning import score
from tideline.report.meaning import gain, wilson
from tideline.report.tables.methods import lines, mean_gain, methods_table

TITLE = "The method and its baselines"


def adapted(*targets: dict[str, Any], rows: int | None = 100, **more: Any) -> dict[str, Any]:
    """A result of these targets, scored on so many rows each."""
    scores = {each["name"]: score(each["accuracy"], rows) for each in targets if each["accuracy"] is not None} if rows else {}
    return result([client("anna", "source"), *targets], **more) | {"scores": scores}


def table(made: dict[str, Any], folder: Path) -> list[str]:
    """The rows of the section, as words."""
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
