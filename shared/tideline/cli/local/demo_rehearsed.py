"""The demo without a method: adaptations are rehearsed where labels are, and what is then expected is held to what is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tideline.cli.local.demo_gains import At, Gain, against, gain_of, taken
from tideline.cli.tables import table
from tideline.client.answers import ExpectedAt, Interval, RunResult, ScoreData
from tideline.core.run import Role
from tideline.core.settings import Plain
from tideline.report.score_rows import in_words
from tideline.report.verdict_rows import REHEARSED, ends, percent, signed

if TYPE_CHECKING:
    from rich.table import Table

    from tideline.client.http import Client

# OptDigits are pen strokes on a grid of 8 x 8: the style that models of the three before it take for something else.
DOMAINS = ("mnist", "coloured", "usps", "optdigits")
ROWS, TARGET_ROWS = 400, 1200  # of each labelled site, and of the target, held-out ones among them
METHOD, NETWORK, SHAPE = "fedavg", "lenet_bn", (1, 28, 28)
# Models that are not adapted train for as many rounds as the others train and adapt, at the rate that is best for them.
ROUNDS, SOURCE_ROUNDS, ADAPTING_ROUNDS = 16, 10, 6
RATE, ADAPTING_RATE = 0.1, 0.01
# Means of batch norm over unlike sites are nobody's, so the best model without the target's rows has none of it.
PLAIN = "no adaptation, lenet"
PLAIN_WORLD: Mapping[str, Plain] = {"model": "lenet", "normalise": "shared"}
SHOWN_HEADS = ("model", "used its rows", "accuracy (95 % interval)", "gain")


def rows_of(role: str) -> int:
    return TARGET_ROWS if role == Role.TARGET else ROWS


def rehearsing(rounds: int | None) -> dict[str, Plain]:
    """The experiment's keys. rounds: at most so many, of sources and of adaptation."""
    return {
        **unadapted(rounds),
        "rehearse": {"candidates": list(candidates(rounds)), "rule": "mean"},
        "then": "run",
    }


def unadapted(rounds: int | None) -> dict[str, Plain]:
    return {"method": METHOD, "config": {"rounds": at_most(rounds, ROUNDS), "rate": RATE}}


def candidates(rounds: int | None) -> Iterator[dict[str, Plain]]:
    """Batch norm measured anew on the target's rows; and a network that trains on them without labels."""
    sources: dict[str, Plain] = {
        "source_rounds": at_most(rounds, SOURCE_ROUNDS),
        "source_epochs": 1,
        "source_rate": RATE,
    }
    yield {"method": "adabn", "config": {**sources, "rounds": 1}}
    adapting: dict[str, Plain] = {"rounds": at_most(rounds, ADAPTING_ROUNDS), "epochs": 1, "rate": ADAPTING_RATE}
    yield {"method": "shot", "config": {**sources, **adapting}}


def at_most(rounds: int | None, usual: int) -> int:
    return usual if rounds is None else min(rounds, usual)


def beside(experiment: Mapping[str, Plain], rounds: int | None) -> dict[str, Plain]:
    """The experiment of a model that was not adapted, of the network that is best for it."""
    others = {key: value for key, value in experiment.items() if key not in ("rehearse", "then", "world")}
    world = experiment["world"]
    assert isinstance(world, Mapping)
    return {**others, **unadapted(rounds), "name": PLAIN, "world": {**world, **PLAIN_WORLD}}


@dataclass(frozen=True)
class Tried:
    """A model that was trained for the target: its run, its score there, and whether it used the target's rows."""

    name: str
    run: RunResult
    score: ScoreData
    adapted: bool


@dataclass(frozen=True)
class Found:
    """What a rehearsal said of a target, the score with that, and all models there; the first is its own, not adapted."""

    at: ExpectedAt
    score: ScoreData
    candidates: tuple[Tried, ...]

    @property
    def best(self) -> Tried:
        """The best that used none of the target's rows."""
        return max((each for each in self.candidates if not each.adapted), key=lambda each: each.score["value"])

    @property
    def chosen(self) -> Tried | None:
        """What counts most."""
        return next((each for each in self.candidates if each.name == next(iter(self.at["chosen"]), "")), None)

    def over(self, other: Tried) -> Gain:
        return gain_of([At(self.score["value"], other.score["value"], self.score["rows"])])


def found_in(client: Client, result: RunResult, plain: str) -> Found | None:
    """Of the first target; None where it was not scored, or nothing was trained for it. plain: the run of `beside`."""
    verdict = result.get("verdict")
    if not verdict or not verdict["targets"]:
        return None
    at = verdict["targets"][0]
    score = accuracy_at(result, at["name"])
    runs = ((name, client.run(run)) for name, run in {**verdict["runs"], PLAIN: plain}.items())
    scored = ((name, run, accuracy_at(run, at["name"])) for name, run in runs)
    found = tuple(Tried(name, run, of, run.get("generalization") is None) for name, run, of in scored if of is not None)
    return Found(at, score, found) if score is not None and found and not found[0].adapted else None


def accuracy_at(result: RunResult, site: str) -> ScoreData | None:
    return (result.get("scores") or {}).get(site, {}).get("accuracy")


def tables_of(found: Found) -> Iterator[Table]:
    """What each model has at the target; and beside each other what was expected there and what was found."""
    yield found_table(found)
    yield from filter(None, [expected_table(found)])


def found_table(found: Found) -> Table:
    before = found.candidates[0].score["value"]
    rows = (
        [each.name, "yes" if each.adapted else "no", in_words(each.score), signed(each.score["value"] - before)]
        for each in sorted(found.candidates, key=lambda each: each.adapted)
    )
    return table(f"All models at {found.at['name']}, whose labels chose nothing", SHOWN_HEADS, rows, right=(2, 3))


def expected_table(found: Found) -> Table | None:
    """None where nothing tells what to expect."""
    gain, accuracy = found.at["gain"], found.at["accuracy"]
    if gain is None or accuracy is None:
        return None
    over = found.over(found.candidates[0])
    rows = (
        ["gain, in points", interval(signed, gain), f"{signed(over.value)} ({signed(over.low)} to {signed(over.high)})"],
        ["accuracy", interval(percent, accuracy), interval(percent, found.score)],
    )
    heads = (found.at["name"], "expected (90 % interval)", "found (95 % interval)")
    return table("Expected without its labels, found with them", heads, rows, right=(1, 2))


def interval(words: Callable[[float], str], of: Interval | ScoreData) -> str:
    return f"{words(of['value'])} ({words(of['low'])} to {words(of['high'])})"


def lines_of(found: Found) -> Iterator[str]:
    """What it took; and what adapting bought, and whether what was expected held."""
    if found.chosen is not None:
        yield taken(found.chosen.run, found.candidates[0].run)
    bought = against(found.over(found.best), found.best.name)
    score = percent(found.score["value"])
    yield f"{' and '.join(found.at['chosen'])}: {score} at {found.at['name']}, {bought}; {held(found)}."


def held(found: Found) -> str:
    expected, value = found.at["gain"], found.over(found.candidates[0]).value
    if expected is None:
        return "nothing told what to expect"
    trust = "" if found.at["trust"] == REHEARSED else f", {found.at['trust']}"
    points = f"{signed(expected['value'])} points over no adaptation ({ends(expected)}{trust})"
    words = f"expected were {points}, found {signed(value)}"
    if expected["low"] <= value <= expected["high"]:
        return f"{words}: the expectation held"
    return f"{words}: {'less' if value < expected['low'] else 'more'} than its interval, so the expectation did not hold"
