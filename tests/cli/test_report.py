"""The report page: whole, safe to open, and the same for the same result."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest

from tideline.algorithms import METHODS
from tideline.cli.report import LEGEND, write_report
from tideline.core.algorithm import contract
from tideline.core.privacy import to_json
from tideline.core.registry import resolve


def client(name: str, role: str, **changed: Any) -> dict[str, Any]:
    """A site's line."""
    made = {"name": name, "domain": "usps", "role": role, "samples": 48, "accuracy": 0.5, "source_only": 0.25}
    return made | {"bytes_up": 1_700_000, "bytes_down": 256, "failures": []} | changed


def result(clients: list[dict[str, Any]], **changed: Any) -> dict[str, Any]:
    """A finished run's result."""
    fedavg = resolve(METHODS, "fedavg")
    clauses = to_json(contract(fedavg, fedavg.config()))
    made = {"name": "demo", "method": "fedavg", "seed": 0, "rounds": 2, "seconds": 3.0, "status": "completed", "cause": ""}
    made |= {"state_digest": "ab" * 32, "fingerprint": "torch 2, 1 threads", "clients": clients, "contract": [*clauses, *clauses]}
    points = [{"client": c["name"], "round": r, "accuracy": 0.1 * r} for c in clients for r in (1, 2)]
    return made | {"curve": points} | changed


def page(told: dict[str, Any], folder: Path) -> str:
    """The report of a result."""
    write_report(told, folder / "report.html")
    return (folder / "report.html").read_text(encoding="utf-8")


def picture(text: str) -> str:
    """The curve in a page."""
    found = re.search(r"base64,([A-Za-z0-9+/=]+)", text)
    assert found is not None
    return base64.b64decode(found[1]).decode()


def test_a_page_says_what_happened(tmp_path: Path) -> None:
    """Sites, the target's outcome in a sentence, and each clause once, under its phase."""
    text = page(result([client("anna", "source"), client("bert", "target")]), tmp_path)
    words = re.sub(r"<[^>]+>", "", text).replace("\u00a0", " ")
    assert "bert (usps), whose labels nobody trained on: 50.0 % of the held-out rows" in words
    assert "alone recognises 25.0 %" in words
    assert "model: the model after local training (weights, to the coordinator)" in words
    assert "one number each for accuracy, source_only (metric, to the coordinator)" in words
    assert [text.count(f"<h3>Phase {name}</h3>") for name in ("train", "score")] == [1, 1]
    assert text.count("the model after local training") == 1


def test_a_page_is_the_same_twice_and_needs_no_network(tmp_path: Path) -> None:
    """Equal results give equal bytes; nothing on the page is fetched from elsewhere."""
    told = result([client("anna", "source"), client("bert", "target")])
    text = page(told, tmp_path)
    assert page(told, tmp_path) == text
    assert "http" not in text and "<script" not in text


def test_texts_from_elsewhere_stay_texts(tmp_path: Path) -> None:
    """Names and causes cannot become markup."""
    told = result([client("<b>anna", "target", domain="<i>")], cause="<script>", name="<u>", status="failed", curve=[])
    text = page(told, tmp_path)
    assert not re.search(r"<script|<u>|<b>anna|<i>", text)
    assert "No site could be scored" in text


@pytest.mark.parametrize("sites", [2, LEGEND + 1])
def test_a_legend_that_can_be_read(tmp_path: Path, sites: int) -> None:
    """With few sites the legend names them all, with many only the targets."""
    clients = [client(f"site-{i}", "source") for i in range(sites - 1)] + [client("bert", "target")]
    drawn = picture(page(result(clients), tmp_path))
    assert "bert usps (target)" in drawn
    assert ("site-0 usps (source)" in drawn) == (sites <= LEGEND)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"accuracy": None}, "could not be scored"),
        ({"source_only": None}, "are recognised."),
        ({"source_only": 0.5}, "are recognised."),
    ],
)
def test_a_target_that_has_less_to_tell(tmp_path: Path, changed: dict[str, Any], words: str) -> None:
    """Without a score, or without another model to compare with, the sentence ends early."""
    assert words in page(result([client("bert", "target", **changed)]), tmp_path)
