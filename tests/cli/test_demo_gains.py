"""What a run bought and took, in sentences of its own numbers."""

from __future__ import annotations

from typing import Any

import pytest

from tideline.cli.local.demo_gains import At, at_labelled_sites, bought, gain_of, taken
from tideline.report.graphs import JOULES, LINKS


def site(name: str, role: str, accuracy: float | None, source_only: float | None = None, **changed: Any) -> dict[str, Any]:
    """A site's line."""
    made = {"name": name, "role": role, "accuracy": accuracy, "source_only": source_only, "metrics": {}}
    return made | {"bytes_up": 1000, "bytes_down": 3000} | changed


def result(*clients: dict[str, Any], **changed: Any) -> Any:
    """As much of a result as the sentences read."""
    return {"method": "m", "clients": list(clients), "contract": [], "phases": []} | changed


SOURCE = site("a", "source", 0.9)


@pytest.mark.parametrize(
    ("accuracy", "words"),
    [
        (0.8, "m: 80.0 % at b, 20.0 points above the best baseline shown (source-only, 60.0 %; 95 % interval +7.3 to +31.9"),
        (0.62, "2.0 points above the best baseline shown"),
        (0.4, "m: 40.0 % at b, 20.0 points below the best baseline shown (source-only, 60.0 %"),
        (0.6, "m: 60.0 % at b, as much as the best baseline shown (source-only, 60.0 %"),
    ],
)
def test_what_a_method_bought(accuracy: float, words: str) -> None:
    said = bought(result(SOURCE, site("b", "target", accuracy, 0.6)), {"b": 100})
    assert words in said and "over 100 held-out rows" in said
    assert ("do not tell from chance" in said) == (accuracy == 0.62)


def test_the_best_of_several_baselines() -> None:
    """The model of the labelled sites that is better, by the run beside it or by this one, on average over the targets."""
    both = (site(name, "target", 0.8, 0.6, metrics={"source_only": 0.7}) for name in "bc")
    assert "10.0 points above the best baseline shown (source_only of this run, 70.0 %" in bought(
        result(*both), {"b": 50, "c": 50}
    )


def test_what_labelled_sites_have() -> None:
    """A sentence of their own where their models are compared with something, and no word on targets."""
    own = (site(name, "source", 0.9, 0.8) for name in "ade")
    said = at_labelled_sites(result(*own, site("b", "target", 0.2, 0.6)), dict.fromkeys("ade", 50))
    assert said.startswith("With labels, 90.0 % at the 3 sites, 10.0 points above the best baseline shown (source-only, 80.0 %")
    assert "over 150 held-out rows" in said
    assert at_labelled_sites(result(SOURCE, site("b", "target", 0.2, 0.6)), {"a": 50}) == ""


def test_nothing_to_say() -> None:
    assert bought(result(SOURCE, site("b", "target", None)), {}) == ""
    assert bought(result(SOURCE, site("b", "target", 0.5)), {"b": 9}) == ""


def test_more_targets_tell_more() -> None:
    """The interval of a mean over two targets is narrower than that of each, and includes the gain."""
    one, two = gain_of([At(0.8, 0.6, 100)]), gain_of([At(0.8, 0.6, 100)] * 2)
    assert one.value == pytest.approx(two.value) and one.low < two.low < two.value < two.high < one.high
    assert (one.rows, two.rows) == (100, 200)


def test_what_a_run_took() -> None:
    """Traffic beside that of the reference, kinds of values in the order of the contract, and links with their joules."""
    clauses = [{"exposure": kind} for kind in ("weights", "count", "weights")]
    table = {"rows": ["a to b"], "columns": ["weight", JOULES], "values": [[0.5, 1.25]]}
    run = result(SOURCE, site("b", "target", 0.5), contract=clauses, phases=[{"tables": {LINKS: table}}])
    beside = result(site("a", "source", 0.9, bytes_up=16_000, bytes_down=0))
    words = "sites sent 2.0 kB (weights, count) and received 6.0 kB, 50 % of the traffic of source-only; 1 link, 1.25 J"
    assert taken(run, beside).startswith(f"What it took: {words}")
    assert taken(result(SOURCE)) == "What it took: sites sent 1.0 kB and received 3.0 kB."
