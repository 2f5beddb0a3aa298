"""Progress and tables."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from tideline.cli.tables import marks_table, result_table, runs_table
from tideline.client.output import size
from tideline.client.watching import WAITS, Tally, Watcher, guesses
from tideline.core.run import ClientId, Waiting
from tideline.engine.coordinator.scheduler import Progress, waits_for

ROSTER = {"anna": "source", "bert": "target"}


def result(**changed: Any) -> dict[str, Any]:
    """A result in the middle of its second scoring."""
    unknown = dict.fromkeys(("domain", "samples", "accuracy", "source_only"))
    sites = [
        {**unknown, "bytes_up": 0, "bytes_down": 0, "failures": [], "name": name, "role": role} for name, role in ROSTER.items()
    ]
    accuracies = {"anna": 0.5, "bert": 0.25}
    made = {"run": "5f0c", "method": "fedavg", "status": "running", "cause": "", "seconds": 3.25, "state_digest": None}
    made |= {"waits_for": "waiting for 1 of 2 sites (bert); gives up in 24 h", "clients": sites, "plan_length": 4, "cursor": 2}
    made["phases"] = [{"name": name, "round": 1, "replies": 2} for name in ("join", "train", "score")]
    made["curve"] = [{"client": name, "phase": "score", "round": 1, "accuracy": value} for name, value in accuracies.items()]
    return {**made, **changed}


def reply(client: str, cursor: int, kind: str = "answered", **metrics: float) -> dict[str, Any]:
    return {"kind": kind, "data": {"client": client, "cursor": cursor, "metrics": metrics}}


def closed(phase: str, number: int, cursor: int) -> dict[str, Any]:
    return {"kind": "closed", "data": {"phase": phase, "round": number, "seconds": 1.0, "replies": 2, "cursor": cursor}}


def test_means_of_a_long_run_are_shown() -> None:
    """A scoring that has a mean alone is told as such; the bars' accuracies are those of the sites' lines."""
    mean = {"client": None, "phase": "score", "round": 1, "accuracy": 0.375, "sites": 5000}
    tally = Tally()
    lines = list(tally.see(result(curve=[mean])))
    assert lines[-1] == "score 1: 2 replies, accuracy 0.375 (mean of 5000 sites)"
    sites = [{**each, "accuracy": 0.25} for each in result()["clients"]]
    list(tally.see(result(curve=[mean], clients=sites)))
    assert tally.accuracy == {"anna": 0.25, "bert": 0.25}


def test_the_engines_sentence_is_understood() -> None:
    names = frozenset(map(ClientId, ("a.b", "c-d", "e")))
    text = waits_for(Progress(names, frozenset({ClientId("f")}), ((ClientId("g"), "why"),)), Waiting(), 100.0)
    found = WAITS.fullmatch(text)
    assert found is not None
    assert (found[1], found[2], set(found[3].split(", "))) == ("3", "5", set(names))


def test_a_result_is_told_once() -> None:
    """Each closed round is a line, with the accuracies that belong to it; the same result again tells nothing."""
    tally = Tally()
    scored = "score 1: 2 replies, accuracy 0.375 (anna 0.500, bert 0.250)"
    assert list(tally.see(result())) == ["sites gathered: 2 replies", "train 1: 2 replies", scored]
    assert list(tally.see(result())) == []
    assert (tally.total, tally.cursor, tally.asked, tally.awaited) == (4, 2, 2, {"bert"})


def test_what_a_fold_did_with_single_sites_is_told() -> None:
    """Behind the round's line, from events and results alike; and how often, in a table under the result."""
    marks = {"chosen": ["bert"], "left out": ["anna"]}
    line = "train 1: 2 replies; chosen bert; left out anna"
    event = closed("train", 1, 2)
    event["data"]["marks"] = marks
    assert list(Tally().event(event)) == [line]
    rounds = [{"name": "train", "round": r, "replies": 2, "marks": marks if r < 3 else {"chosen": ["anna"]}} for r in (1, 2, 3)]
    told = result(phases=[*rounds, {"name": "score", "round": 1, "replies": 2, "marks": {}}], curve=[])
    assert line in list(Tally().see(told))
    shown = marks_table(told)
    assert shown is not None and marks_table(result()) is None
    assert [" ".join(text.split()) for text in drawn(shown)] == ["anna 1 of 3 2 of 3", "bert 2 of 3 0 of 3"]


def drawn(table: Table) -> list[str]:
    return [" ".join(str(cell) for cell in row) for row in zip(*(column.cells for column in table.columns), strict=True)]


def test_events_fill_the_time_between_results() -> None:
    """Replies are counted off, accuracies shown, rounds told once; replies of other rounds change nothing."""
    tally = Tally()
    list(tally.see(result()))
    assert list(tally.event(reply("bert", 1))) == []
    assert tally.awaited == {"bert"}
    assert list(tally.event(reply("bert", 2, accuracy=0.75))) == []
    assert (tally.awaited, tally.accuracy["bert"]) == (set(), 0.75)
    assert list(tally.event(closed("score", 2, 3))) == ["score 2: 2 replies, accuracy 0.750 (bert 0.750)"]
    assert list(tally.event(closed("score", 2, 3))) == []
    assert (tally.cursor, tally.asked) == (3, None)


def test_a_change_of_status_is_told_with_its_cause() -> None:
    """Stalls and ends are lines; that a run runs is none, unless it had stalled."""
    tally = Tally()
    list(tally.see(result()))
    assert list(tally.event({"kind": "stalled", "data": {"cause": "too few"}})) == ["stalled: too few"]
    assert list(tally.event(reply("bert", 2, kind="failed"))) == ["bert: failed"]
    assert list(tally.event({"kind": "running", "data": {"cause": "resumed by a person"}})) == ["running: resumed by a person"]
    assert list(tally.event({"kind": "completed", "data": {"cause": ""}})) == ["completed"]
    assert list(tally.event({"kind": "created", "data": {"method": "x"}})) == []


def test_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal there are plain lines on stderr and nothing on stdout; a quiet watcher says nothing."""
    for quiet in (True, False):
        with Watcher(quiet=quiet) as watcher:
            watcher.show(result(cause="\x1b[2J", status="failed"))
            watcher.event(closed("train", 2, 3))
        told = capsys.readouterr()
        assert told.out == ""
        assert told.err.splitlines() == ([] if quiet else told.err.splitlines())
        assert ("train 2: 2 replies" in told.err) is not quiet
        assert "\x1b" not in told.err


def test_bars_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "150")
    with Watcher(bars=True) as watcher:
        watcher.show(result())
    drawn = capsys.readouterr().err
    for words in ("2 of 4 score 1", "1 of 2, waiting for bert", "0.375 (anna 0.500, bert 0.250)"):
        assert words in drawn


def test_bars_of_many_sites(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Of many sites the mean stands alone; replies are counted from events, too, and the rest of the time is guessed."""
    monkeypatch.setenv("COLUMNS", "150")
    names = [f"site-{i:03d}" for i in range(300)]
    curve = [{"client": name, "phase": "score", "round": 1, "cursor": 1, "accuracy": 0.5} for name in names]
    with Watcher(bars=True) as watcher:
        watcher.show(result(waits_for="", curve=curve))
        watcher.event({**closed("train", 2, 3), "data": {**closed("train", 2, 3)["data"], "asked": 300}})
        for name in names[:299]:
            watcher.event(reply(name, 3, accuracy=0.75))
        assert (watcher.tally.asked, len(watcher.tally.heard)) == (300, 299)
    drawn = capsys.readouterr().err
    assert "0.500 (mean of 300 sites)" in drawn and "site-001" not in drawn
    assert "3 of 4 train 2, about 0 s left" in drawn and " of 300" in drawn


def test_bars_in_a_narrow_window(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """With more sites than fit, the names of the bars stay whole and each has one line."""
    monkeypatch.setenv("COLUMNS", "80")
    names = [f"hospital-{i}" for i in range(12)]
    waits = f"waiting for 12 of 12 sites ({', '.join(names)}); gives up in 60 min"
    curve = [{"client": name, "phase": "score", "round": 1, "cursor": 1, "accuracy": 0.5} for name in names]
    with Watcher(bars=True) as watcher:
        watcher.show(result(waits_for=waits, curve=curve))
    drawn = [line.strip() for line in capsys.readouterr().err.splitlines() if line.strip()]
    assert [line.split()[0] for line in drawn] == ["rounds", "replies", "accuracy"]
    assert all(len(line) <= 80 for line in drawn) and [line[-1] for line in drawn[1:]] == ["…", "…"]


def test_a_simulations_result_needs_no_plan() -> None:
    """A result without the plan's length still counts the closed rounds."""
    tally = Tally()
    bare = {k: v for k, v in result().items() if k not in ("plan_length", "cursor")}
    list(tally.see(bare))
    assert (tally.total, tally.cursor) == (None, 2)


def test_the_table_has_a_line_per_site() -> None:
    """Columns, a dash for what is not known yet, no labels where a finished run could not score, and failures by kind."""
    done = result(status="completed", state_digest="b3-" + "ab" * 32)
    done["clients"][0] |= {"domain": "mnist", "samples": 48, "accuracy": 0.875, "source_only": 0.5, "bytes_up": 1_700_000}
    done["clients"][1] |= {"failures": [{"kind": "StepFailed"}, {"kind": "Silent"}], "name": "[red]bert"}
    lines = printed(done)
    assert lines[0].strip() == "Run 5f0c, fedavg, completed, 3.2 s, state b3-ababababa"
    head = "site domain role samples source-only result bytes up bytes down failures"
    assert " ".join(next(line for line in lines if "site" in line).split()) == head
    assert " ".join(next(line for line in lines if "anna" in line).split()) == "anna mnist source 48 0.500 0.875 1.7 MB 0 B 0"
    assert " ".join(next(line for line in lines if "bert" in line).split()) == (
        "[red]bert – target – – no labels 0 B 0 B 2 (Silent, StepFailed)"
    )
    assert any("anna source – – – 0 B 0 B 0" in " ".join(line.split()) for line in printed(result()))
    ended = [" ".join(line.split()) for line in printed(result(status="completed"))]
    assert "anna source – – – 0 B 0 B 0" in ended, "a source has labels, whether it is scored or not"


def test_the_table_tells_how_it_generalizes() -> None:
    means = {"id": {"accuracy": 0.7152, "sites": 2}, "ood": {"accuracy": 0.5461, "sites": 1}}
    lines = [line.rstrip() for line in printed(result() | {"generalization": means}, 80)]
    assert lines[-2:] == [
        "in-distribution (mean of 2 sites' own held-out rows): 0.715",
        "out-of-distribution (mean of 1 unseen target): 0.546",
    ]
    plain = [line.rstrip() for line in printed(result() | {"generalization": None}, 80)]
    assert plain == lines[:-2] == [line.rstrip() for line in printed(result(), 80)]


def test_tables_fit_a_window() -> None:
    """In 80 columns no cell of a result or of the list of runs is broken, but for the words of a cause."""
    done = result(status="completed", state_digest="b3-" + "ab" * 32)
    for client in done["clients"]:
        client |= {"name": f"hospital-{client['name']}", "samples": 12_000, "bytes_up": 171_000_000, "bytes_down": 171_000_000}
    assert len(printed(done, 80)) == 3 + len(done["clients"])
    row = {"id": "5f0c1a9be2d4", "name": "fedavg", "method": "fedavg", "status": "completed", "cursor": 40, "of": 40}
    lines = printed_table(runs_table([row | {"created": 0.0, "cause": ""}]), 80)
    assert len(lines) == 3 and re.search(r"40 of 40 \d{4}-\d\d-\d\d \d\d:\d\d", lines[-1])


def printed(told: dict[str, Any], width: int = 150) -> list[str]:
    return printed_table(result_table(told), width)


def printed_table(made: Table, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(made)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_sizes_for_people() -> None:
    sizes = {0: "0 B", 999: "999 B", 1000: "1.0 kB", 1_500_000: "1.5 MB", 2 * 10**9: "2.0 GB", 3 * 10**13: "30.0 TB"}
    assert [size(n) for n in sizes] == [*sizes.values()]


def test_a_model_that_guesses_is_named() -> None:
    """Of a completed run: the targets where it is right no more often than by chance. Nothing of a better one, or an open run."""
    found = {"anna": 0.25, "bert": 0.26, "carl": None}
    clients = [{"name": name, "role": "target", "accuracy": accuracy} for name, accuracy in found.items()]
    given: Any = {"status": "completed", "world": {"classes": 4}, "clients": clients}
    (line,) = guesses(given)
    assert line.startswith("No better than guessing one of 4 classes at anna. Their data differ too much")
    assert guesses({**given, "status": "running"}) == [] == guesses({**given, "clients": clients[1:]})
    assert guesses({**given, "clients": [{**clients[0], "role": "source"}]}) == []
