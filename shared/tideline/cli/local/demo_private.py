"""The demo of privacy: a run that protects each row, the same without, and what the sites' owners see of it."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tideline.cli.local.demo_processes import tide
from tideline.client.answers import RunResult, SiteResult
from tideline.core.errors import ConfigRefused
from tideline.core.run import Role
from tideline.core.settings import Plain
from tideline.report.verdict_rows import percent

METHOD = "fedavg"
ROUNDS, RATE, EPSILON, BUDGET = 15, 0.1, 6.0, 8.0
# Sites have 1,300 to 2,000 rows for training, of which each step draws some 75.
PRIVACY: Mapping[str, Plain] = {"rows": 1500, "epsilon": EPSILON, "rate": 0.05, "clip": 1.0}
POLICY = f"[privacy]\nepsilon = {BUDGET}\ndelta = 1e-5\nrows = 1500\n"


def check_private(method: str | None) -> None:
    """Raises ConfigRefused where the demo of privacy cannot be."""
    if method not in (None, METHOD):
        what = f"--private shows {METHOD}, and --method is {method}"
        raise ConfigRefused(
            what, "Leave one of them out; `privacy:` in an experiment protects rows of other methods", path="private"
        )
    if importlib.util.find_spec("dp_accounting") is None:
        what = "Nothing here counts epsilon: the package dp-accounting is not installed"
        raise ConfigRefused(what, "pip install 'tideline[privacy]'", path="private")


def policy_in(folder: Path, given: Path | None) -> Path:
    """The file of every site's owner: what private runs may cost their rows in all. One that is given stays as it is."""
    if given is not None:
        return given
    path = folder / "policy.toml"
    path.write_text(POLICY, encoding="utf-8")
    return path


def protected(experiment: Mapping[str, Plain], rounds: int | None) -> dict[str, Plain]:
    """The experiment as a private run, scored once, at its end."""
    world = experiment["world"]
    assert isinstance(world, Mapping)
    many = ROUNDS if rounds is None else rounds
    config: dict[str, Plain] = {"rounds": many, "evaluate_every": max(many, 1), "rate": RATE}
    private = {"preset": None, "config": config, "reference": None, "privacy": dict(PRIVACY)}
    return {**experiment, **private, "name": "demo of a private run", "world": {**world, "normalise": "none"}}


def beside(experiment: Mapping[str, Plain]) -> dict[str, Plain]:
    """The same without privacy."""
    others = {key: value for key, value in experiment.items() if key != "privacy"}
    return {**others, "name": "the same without privacy"}


def lines_of(result: RunResult, plain: RunResult, home: Path) -> Iterator[str]:
    """What is promised, what it cost in accuracy, and what it cost the budgets, in sentences of the runs' own numbers."""
    private = result.get("privacy")
    if not private:
        return
    yield (
        f"Each row of a site is protected: whatever is made of what its site sent, taking the row out changes its probability"
        f" by a factor of e^{private['epsilon']:.3g} at most, but for a chance of {private['delta']:g}."
    )
    for whose, role in (("without labels", Role.TARGET), ("with labels", Role.SOURCE)):
        pairs = [
            (own, mean([other])) for own, other in zip(result["clients"], plain["clients"], strict=True) if own["role"] == role
        ]
        known = [(own["accuracy"], other) for own, other in pairs if own["accuracy"] is not None and other is not None]
        if known:
            own, other = (sum(values) / len(values) for values in zip(*known, strict=True))
            cost = 100 * (other - own)
            yield (
                f"Accuracy at sites {whose}: {percent(own)}, counted with noise, and {percent(other)} without privacy:"
                f" it costs {cost:.1f} points here."
            )
    yield from budgets_of([client["name"] for client in result["clients"] if client["role"] != Role.TARGET], home)


def mean(clients: Sequence[SiteResult]) -> float | None:
    known = [client["accuracy"] for client in clients if client["accuracy"] is not None]
    return sum(known) / len(known) if known else None


def budgets_of(names: Sequence[str], home: Path) -> Iterator[str]:
    """What the owner of the first labelled site is shown by the owner's own command."""
    for name in names[:1]:
        done = tide("site", "budget", "--home", str(home / f"home-{name}"), "--json")
        if done.returncode:
            continue
        for budget in json.loads(done.stdout)["budgets"]:
            if budget["epsilon"] is not None:
                spent, left = budget["spent"], budget["left"]
                yield (
                    f"The owner of {name} allows epsilon {budget['epsilon']:g} to all runs together. {spent:.2f} of it is spent,"
                    f" as the site itself counts, and {left:.2f} is left. Another run like this is refused there before any work."
                )
