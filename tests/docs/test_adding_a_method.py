"""The method of docs/adding-a-method.md is complete: it is taken out of the page, run, and held to the laws."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.laws import laws, results
from tests.laws.case import Bar, Case
from tests.synthetic import sites
from tideline.core.algorithm import load_methods
from tideline.engine.simulation.federation import simulate

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-method.md"
LAWS = [
    laws.archive_keeps_all,
    laws.functions_are_pure,
    laws.arrival_does_not_matter,
    laws.restarts_change_nothing,
    laws.old_memory_is_noticed,
    laws.lost_reply_is_noticed,
    laws.site_data_stay,
    laws.peers_see_what_is_declared,
    laws.a_quorum_goes_on,
    laws.no_quorum_stalls,
    laws.one_site_in_all,
    laws.every_clause_can_be_forbidden,
    results.models_are_what_it_says,
]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    """The page's method, in a module of the name that the page gives it."""
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    file = tmp_path_factory.mktemp("page") / "class_means.py"
    file.write_text(block)
    spec = importlib.util.spec_from_file_location("class_means", file)
    assert spec is not None and spec.loader is not None
    module = sys.modules["class_means"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield Case("class_means", load_methods("class_means:METHODS"))
    del sys.modules["class_means"]


def test_the_pages_method_runs(case: Case) -> None:
    """The block on the page is whole: it runs through simulate and scores every site."""
    result = simulate(case.methods, case.experiment(), sites())
    assert result["status"] == "completed", result["cause"]
    assert all(client["accuracy"] is not None for client in result["clients"])


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_the_pages_method_keeps_the_laws(case: Case, law: object) -> None:
    """What the page teaches passes what it promises."""
    law(case)  # type: ignore[operator]


def test_the_pages_method_learns(case: Case) -> None:
    """The nearest class mean clears the bar on the small shift."""
    results.learns(case, Bar(0.9))
