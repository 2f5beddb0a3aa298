"""Each metric and each figure of the report has a line of words on what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.echo import told
from tests.cli.test_report import client, page, result, words
from tideline.algorithms import METHODS
from tideline.core.algorithm import contract, resolve
from tideline.report.tables.words import FIGURES, OWN, figure_line, metric_line


@pytest.mark.parametrize("name", [name for name, _ in METHODS])
def test_metrics_of_methods_are_known(name: str) -> None:
    method = resolve(METHODS, name)
    fields = {clause.field for clause in contract(method, method.config()) if clause.field.startswith("metrics.")}
    assert [each for each in fields if metric_line(each.removeprefix("metrics.")) == OWN] == []


def test_tables_of_methods_are_known() -> None:
    folder = Path(__file__).parents[2] / "shared/tideline/algorithms"
    named = {found for path in folder.rglob("*.py") for found in re.findall(r'"([^"\n{]+)": Table\(', path.read_text())}
    named |= {found for path in folder.rglob("*.py") for found in re.findall(r'\w+\["([^"\n]+)"\] = ', path.read_text())}
    assert len(named) > 8 and [each for each in named if " " in each and figure_line(each) == OWN] == []
    assert metric_line("anything") == OWN and figure_line("anything") == OWN
    assert all(line.endswith(".") and "\n" not in line for line in FIGURES.values())


def test_every_figure_says_what_it_says(tmp_path: Path) -> None:
    text = page(told(), tmp_path)
    assert text.count("<figure>") == text.count("<figure><p class='says'>")
    assert all(words(each).strip() for each in re.findall(r"<p class='says'>(.*?)</p>", text))
    assert "What training makes small" in text and "accuracy_b</b>: Share of held-out rows" in text


def test_marks_and_tables_have_a_line(tmp_path: Path) -> None:
    rounds = [
        {
            "name": "train",
            "round": number,
            "asked": 0,
            "marks": {"left out": ["anna"], "<u>": ["anna"]},
            "tables": {"weight of each site": {"rows": ["anna"], "columns": ["weight"], "values": [[0.5 * number]]}},
        }
        for number in (1, 2, 3)
    ]
    text = page(result([client("anna", "source")], phases=rounds), tmp_path)
    assert "<b>left out</b>: its reply was not used" in text and "<b>&lt;u&gt;</b>" in text
    assert "<p class='says'>How much each site&#x27;s knowledge counts" in text
