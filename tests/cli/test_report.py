"""The report page: whole, safe to open, and the same for the same result; each metric and figure has a line on what it says."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.echo import told
from tideline.algorithms import METHODS
from tideline.core.algorithm import contract, resolve
from tideline.core.errors import ConfigRefused
from tideline.core.privacy import to_json
from tideline.report.page import write_all, write_report
from tideline.report.tables.words import FIGURES, OWN, figure_line, metric_line


def client(name: str, role: str, **changed: Any) -> dict[str, Any]:
    made = {"name": name, "domain": "usps", "role": role, "samples": 48, "accuracy": 0.5, "source_only": 0.25}
    return made | {"bytes_up": 1_700_000, "bytes_down": 256, "failures": []} | changed


def result(clients: list[dict[str, Any]], **changed: Any) -> dict[str, Any]:
    fedavg = resolve(METHODS, "fedavg")
    clauses = to_json(contract(fedavg, fedavg.config()))
    made = {"name": "demo", "method": "fedavg", "seed": 0, "rounds": 2, "seconds": 3.0, "status": "completed", "cause": ""}
    made |= {"state_digest": "b3-" + "ab" * 32, "fingerprint": "torch 2, 1 threads"}
    made |= {"clients": clients, "contract": [*clauses, *clauses]}
    points = [{"client": c["name"], "round": r, "accuracy": 0.1 * r} for c in clients for r in (1, 2)]
    return made | {"curve": points} | changed


def page(told: dict[str, Any], folder: Path) -> str:
    write_report(told, folder / "report.html")
    return (folder / "report.html").read_text(encoding="utf-8")


def headings(text: str) -> list[str]:
    return re.findall(r"<h2>(.+?)</h2>", text)


def words(text: str) -> str:
    return re.sub(r"<[^>]+>", " ", text).replace("\u00a0", " ")


def test_a_page_says_what_was_done_with_single_sites(tmp_path: Path) -> None:
    """How often; no section where folds did nothing of the kind. The notes are of the head, and no mark becomes markup."""
    plain = result([client("anna", "source"), client("<i>", "source")])
    rounds = [{"name": "train", "round": 1, "marks": {"chosen": ["anna"], "left out": ["<i>"]}}, {"name": "train", "marks": {}}]
    text = page(plain | {"phases": [p | {"asked": 0} for p in rounds], "notes": ["robust: <krum>"]}, tmp_path)
    section = text.split("<h2>What was done with single sites</h2>")[1].split("<h2>")[0]
    assert "robust: &lt;krum&gt;" in text.split("<h2>")[0] and "&lt;i&gt;" in section and "<i>" not in text
    assert "In how many of 1 rounds. site chosen left out anna source 1 0" in " ".join(words(section).split())
    assert "What was done" not in page(plain, tmp_path)


def test_a_page_tells_the_notes_where_no_site_was_marked(tmp_path: Path) -> None:
    plain = result([client("anna", "source")], notes=["epsilon 296 <above>"], phases=[])
    assert "epsilon 296 &lt;above&gt;" in page(plain, tmp_path).split("<h2>")[0]


def test_a_page_says_what_happened(tmp_path: Path) -> None:
    """Sites, the target's outcome in a sentence, and each clause once, under its phase."""
    text = page(result([client("anna", "source"), client("bert", "target")]), tmp_path)
    plain = re.sub(r"<[^>]+>", "", text).replace("\u00a0", " ")
    assert "bert (usps), whose labels nobody trained on: 50.0 % of the held-out rows" in plain
    assert "alone recognises 25.0 %" in plain
    assert "model: the model after local training (weights, to the coordinator)" in plain
    assert "one number each for accuracy, source_only (metric, to the coordinator)" in plain
    assert [text.count(f"<h3>Phase {name}</h3>") for name in ("train", "score")] == [1, 1]
    assert text.count("the model after local training") == 1


@pytest.mark.parametrize(
    ("own", "unseen", "said"),
    [
        (3, 2, ("(mean of 3 sites' own held-out rows): 71.5 %", "(mean of 2 unseen targets): 54.6 %")),
        (1, 1, ("(mean of 1 site's own held-out rows): 71.5 %", "(mean of 1 unseen target): 54.6 %")),
    ],
)
def test_the_head_tells_how_it_generalizes(tmp_path: Path, own: int, unseen: int, said: tuple[str, ...]) -> None:
    """Where there are unseen targets; elsewhere, and in results of before, there is no word of it."""
    means = {"id": {"accuracy": 0.7152, "sites": own}, "ood": {"accuracy": 0.5461, "sites": unseen}}
    plain = result([client("anna", "source"), client("bert", "target")])
    head = " ".join(words(page(plain | {"generalization": means}, tmp_path).split("<h2>")[0]).split())
    assert all(f"{kind}-distribution {end}" in head for kind, end in zip(("in", "out-of"), said, strict=True))
    for other in (plain, plain | {"generalization": None}):
        assert "distribution" not in page(other, tmp_path)


def test_a_page_is_the_same_twice_and_needs_no_network(tmp_path: Path) -> None:
    """Equal results give equal bytes; nothing on the page is fetched from elsewhere."""
    told = result([client("anna", "source"), client("bert", "target")])
    text = page(told, tmp_path)
    assert page(told, tmp_path) == text
    assert "http" not in text and "<script" not in text


def test_texts_from_elsewhere_stay_texts(tmp_path: Path) -> None:
    told = result([client("<b>anna", "target", domain="<i>")], cause="<script>", name="<u>", status="failed", curve=[])
    text = page(told, tmp_path)
    assert not re.search(r"<script|<u>|<b>anna|<i>", text)
    assert "No site could be scored" in text


def test_a_target_that_has_less_to_tell(tmp_path: Path) -> None:
    """Without a score, or without another model to compare with, the sentence ends early."""
    assert "could not be scored" in page(result([client("bert", "target", accuracy=None)]), tmp_path)
    for other in (None, 0.5):
        assert "are recognised." in page(result([client("bert", "target", source_only=other)]), tmp_path)


def test_a_page_shows_all_that_a_run_told(tmp_path: Path) -> None:
    """Every kind of section, in its order; each picture has the sentence below it as its other text."""
    text = page(told(), tmp_path)
    assert headings(text) == [
        *("The method and its baselines", "Sites", "Accuracies side by side", "Accuracy over the rounds", "What left the sites"),
        *("Details", "Other metrics over the rounds", "Families of metrics", "Traffic"),
    ]
    pictures = re.findall(r"<img alt='([^']+)' src='data:image/png;base64,([^']+)'><figcaption>([^<]+)</figcaption>", text)
    assert len(pictures) == text.count("<img") == 4
    for other, data, caption in pictures:
        assert caption.startswith(f"{other} n = ") and "; unit: " in caption and base64.b64decode(data).startswith(b"\x89PNG")


def test_the_tables_of_a_page(tmp_path: Path) -> None:
    """Accuracies by column with the mean over the shaded targets; traffic by phase, as a share of sending the model."""
    text = page(told(), tmp_path)
    rows = [re.sub(r"\s+", " ", words(row)).strip() for row in re.findall(r"<tr.*?</tr>", text)]
    assert "site accuracy source_ only accuracy_ a accuracy_ b" in rows
    assert "anna source 50.0 % 25.0 % – –" in rows
    assert "mean over targets 50.0 % 25.0 % 45.0 % 55.0 %" in rows
    assert text.count("<tr class='target'>") == 6
    assert "phase to a site from a site as a share of sending the model" in rows
    assert any(re.fullmatch(r"send 3 exchanges [\d.]+ k?B [\d.]+ k?B \d+\.\d %", row) for row in rows)
    assert "100 % is what the first exchange of the phase send took, there and back" in words(text)


def test_a_page_leaves_out_what_is_not_there(tmp_path: Path) -> None:
    """Without history no metrics, without weights no share, without bytes no traffic, without scores no table of them."""
    known = told(history=False)
    assert not {"Other metrics over the rounds", "Families of metrics"} & set(headings(page(known, tmp_path)))
    assert "share of sending" not in page(known | {"contract": []}, tmp_path)
    bare = known | {"phases": [], "curve": []}
    bare["clients"] = [c | {"metrics": {}, "accuracy": None, "source_only": None} for c in known["clients"]]
    assert headings(page(bare, tmp_path)) == ["Sites", "Accuracy", "What left the sites"]


def test_metrics_from_elsewhere_stay_texts(tmp_path: Path) -> None:
    known = told()
    odd = [
        {"client": "bert", "phase": "<u>", "round": r, "cursor": r, "metrics": {"<i>'": r, "<b>_1": 1.0, "<b>_2": 1.0}}
        for r in (1, 2)
    ]
    closed = [dict(p, name="<script>") for p in known["phases"]]
    clients = [dict(c, metrics={"accuracy_<s>": 0.5}) for c in known["clients"]]
    text = page(known | {"history": odd, "phases": closed, "clients": clients, "contract": []}, tmp_path)
    assert "&lt;i&gt;&#x27; in phase &lt;u&gt;" in text
    assert not re.search(r"<script|<u>|<i>|<s>|<b>_", text)


def test_everything_in_a_folder(tmp_path: Path) -> None:
    """The result as it was given, the page, and the figures; the paths are told. Other files in the folder stay."""
    given = told()
    (tmp_path / "notes.txt").write_text("mine")
    made = write_all(given, tmp_path)
    assert json.loads(Path(made["result"]).read_text()) == given
    assert Path(made["report"]).read_text() == page(given, tmp_path)
    assert sorted(made["figures"]) == sorted(map(str, (tmp_path / "figures").iterdir()))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["figures", "notes.txt", "report.html", "result.json"]


@pytest.mark.parametrize(
    ("place", "path"), [("taken", "figures"), ("taken/below", "figures"), ("half", "report.html"), ("drawn", "figures")]
)
def test_a_folder_that_cannot_be_written(tmp_path: Path, place: str, path: str) -> None:
    """What is in the way is told by its path, nothing is written, and there is no word of room."""
    (tmp_path / "taken").write_text("a file")
    (tmp_path / "half" / "report.html").mkdir(parents=True)
    (tmp_path / "drawn").mkdir()
    (tmp_path / "drawn" / "figures").write_text("a file")
    with pytest.raises(ConfigRefused, match=f"^{re.escape(str(tmp_path / place / path))} cannot be written: ") as refused:
        write_all(told(), tmp_path / place)
    assert "room" not in refused.value.todo
    assert {p.name for p in tmp_path.rglob("*")} == {"taken", "half", "report.html", "drawn", "figures"}


def test_a_full_disk_wants_room(tmp_path: Path) -> None:
    (tmp_path / "result.json").symlink_to("/dev/full")
    with pytest.raises(ConfigRefused, match="No space left on device") as refused:
        write_all(told(), tmp_path)
    assert refused.value.todo.startswith("Make room")


def test_rows_that_are_not_in_the_result(tmp_path: Path) -> None:
    """A number that the result does not have is a dash: the site may have told it to the coordinator in a reply."""
    text = page(result([client("anna", "source", samples=None), client("bert", "target", samples=1234)]), tmp_path)
    assert "<td class='n'>–</td>" in text and "<td class='n'>1,234</td>" in text and "not told" not in text


def test_metrics_of_methods_are_known(subtests: pytest.Subtests) -> None:
    """A new metric needs a line."""
    for name, _ in METHODS:
        with subtests.test(name):
            method = resolve(METHODS, name)
            fields = {clause.field for clause in contract(method, method.config()) if clause.field.startswith("metrics.")}
            assert [field for field in fields if metric_line(field.removeprefix("metrics.")) == OWN] == []


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
    table = {"rows": ["anna"], "columns": ["weight"]}
    tables = [{"weight of each site": {**table, "values": [[0.5 * number]]}} for number in (1, 2, 3)]
    closed = {"name": "train", "asked": 0, "marks": {"left out": ["anna"], "<u>": ["anna"]}}
    rounds = [{**closed, "round": number, "tables": told} for number, told in enumerate(tables, 1)]
    text = page(result([client("anna", "source")], phases=rounds), tmp_path)
    assert "<b>left out</b>: its reply was not used" in text and "<b>&lt;u&gt;</b>" in text
    assert "<p class='says'>How much each site&#x27;s knowledge counts" in text
