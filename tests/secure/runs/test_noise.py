"""Noise in sums: each site's change is shortened, and the shares of noise of as few sites as may remain are all of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.laws.stage import Stage
from tests.secure.runs.played import CONFIG, asked, ended, played, stage
from tests.synthetic import NAMES
from tideline.core.asked.secure import SecureSums
from tideline.core.errors import ConfigRefused, RosterRefused, StepFailed
from tideline.engine.compute.sums.numbers import Row, grid_for, words_of
from tideline.engine.compute.sums.phases import MEANS
from tideline.numerics.aggregation.sums import SHARE, mean_from, shapes_of, terms
from tideline.numerics.privacy.streams import Stream
from tideline.secure.graph import enough

KEY = b"k" * 32
NOISE = {"norm": 1.0, "noise": 1.0}


@given(st.floats(1e-3, 1e3), st.integers(0, 1000))
def test_a_change_is_no_longer_than_the_norm(size: float, seed: int) -> None:
    """In whole numbers, rounding included: the row without its noise, which the same stream draws."""
    grid, w = grid_for(5, 32), {"w": torch.zeros(40, 3), "b": torch.zeros(7)}
    rng = torch.Generator().manual_seed(seed)
    made = {name: size * torch.randn(t.shape, generator=rng) for name, t in w.items()}
    row, bound = Row(shapes_of(w), ("loss",)), 2.0**20
    values = terms(made, w, 1.0, 1.0)
    with_noise = steps(row, values, bound, 100.0, grid, Stream(KEY, "one"))
    nothing = terms(w, w, 1.0, 1.0)
    alone = steps(row, nothing, bound, 100.0, grid, Stream(KEY, "one"))
    own = [row.places[name] for name in row.shapes if name != SHARE]
    change = np.concatenate([(with_noise - alone)[place] for place in own]).astype(np.float64)
    assert math.sqrt(float((change**2).sum())) <= bound
    assert (with_noise[row.tensors :] == 0).all() and with_noise[row.places[SHARE]][0] == grid.most


def steps(row, values, bound, noise, grid, stream):  # type: ignore[no-untyped-def]
    made = row.encode_noised(values, (SHARE,), bound, noise, grid, stream)
    return grid.steps(words_of(made, grid.bits).copy()).astype(np.int64)


def test_the_noise_of_those_who_may_remain_is_all_of_it() -> None:
    """The sum of floor(2 N / 3) + 1 sites is off by `noise` norms, and no more."""
    n, asked = 9, SecureSums(norm=0.5, noise=2.0)
    least, grid, w = enough(n), grid_for(n, 32), {"w": torch.zeros(20_000)}
    reach = asked.reach(least)
    row, bound = Row(shapes_of(w), ()), 0.5 / reach * 2.0**grid.exponent
    change = {"w": torch.full((20_000,), 0.5 / math.sqrt(20_000))}
    total = grid.zeros(row.length)
    for i in range(least):
        values = terms(change, w, 1.0, reach)
        noise = 2.0 * bound / math.sqrt(least)
        total += words_of(row.encode_noised(values, (SHARE,), bound, noise, grid, Stream(KEY, i)), 32)
    mean = mean_from(row.decode(total, grid, least).tensors, w, reach)["w"] * least
    assert float((mean - least * change["w"]).std()) == pytest.approx(2.0 * 0.5, rel=0.03)


def test_a_norm_that_rounding_outgrows_is_refused() -> None:
    """With words on what to do."""
    w = {"w": torch.zeros(1000)}
    row, grid = Row(shapes_of(w), ()), grid_for(3, 32)
    with pytest.raises(StepFailed, match="bits: 64"):
        row.encode_noised(terms(w, w, 1.0, 1.0), (SHARE,), 3.0, 1.0, grid, Stream(KEY))


def noised(**more: object) -> tuple[Stage, str]:
    made = stage()
    run = made.start(asked(secure_sums={**NOISE, **more}))
    made.play(run)
    return made, run


def test_a_run_says_what_its_noise_promises() -> None:
    """Its notes, its contract; and no metric of training is told, in which there is no noise."""
    found, run = noised()
    ended(found, run)  # type: ignore[arg-type]
    notes = " ".join(found.result(run)["notes"])  # type: ignore[arg-type]
    assert "2 sums with noise protect each whole site: epsilon" in notes
    clause = next(each for each in found.row(run).contract if each.field == "values")  # type: ignore[arg-type]
    assert "no longer than 1" in clause.wire and "noise of 1 times that" in clause.wire
    tables = [each.tables[MEANS] for each in found.journal.rounds(run) if MEANS in each.tables]  # type: ignore[arg-type]
    assert len(tables) == 2 and {table.columns for table in tables} == {("clipped",)}


def test_little_noise_in_a_long_norm_changes_little() -> None:
    """The accuracy is that of a run without."""
    quiet, run = noised(norm=4.0, noise=0.0101, bits=64)
    plain, other = played(config=CONFIG)
    ended(quiet, run)  # type: ignore[arg-type]
    scores = [
        [each["accuracy"] for each in found.result(of)["curve"][-len(NAMES) :]] for found, of in ((quiet, run), (plain, other))
    ]
    assert sum(scores[0]) / len(NAMES) == pytest.approx(sum(scores[1]) / len(NAMES), abs=0.2)


def test_much_noise_is_another_each_time() -> None:
    """It comes of each site's own key, and of the run."""
    (one, first), (two, second) = noised(), noised()
    assert ended(one, first) != ended(two, second)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "sums", "words"),
    [
        ("fedgma", NOISE, "nothing can be shortened"),
        ("fedavg", {"norm": 1.0}, "only beside secure_sums.noise"),
        ("fedavg", {"noise": 1.0}, "only beside secure_sums.norm"),
        ("fedavg", {"sites": 9}, "the least that is made"),
        ("hfedf", {}, "needs the replies of single sites"),
    ],
)
def test_what_cannot_be_is_refused(method: str, sums: dict[str, float], words: str) -> None:
    """Before anybody works, with the place."""
    made = stage()
    with pytest.raises((ConfigRefused, RosterRefused), match=words) as caught:
        made.start(asked(method, secure_sums=sums, config={}))
    assert str(caught.value.context["path"]).startswith("secure_sums")


@pytest.mark.parametrize("name", ["wire", "shares", "sample"])
def test_what_looks_at_single_replies_is_refused(name: str) -> None:
    """Beside secure sums, with what to leave out."""
    given = {"wire": "int8", "shares": {"max": 0.5}, "sample": 3}
    with pytest.raises(ConfigRefused, match=f"stands beside {name}") as caught:
        stage().start(asked(**{name: given[name]}))
    assert caught.value.context["path"] == name


def test_rows_are_protected_in_sums_that_nobody_sees() -> None:
    """Noise of gradients and masks go together: the contract says both of the values, and the run its epsilon."""
    privacy = {"rows": 40, "noise": 2.0, "delta": 1e-3, "rate": 0.25, "score_noise": 1000.0}
    found, run = played(privacy=privacy)
    ended(found, run)
    clause = next(each for each in found.row(run).contract if each.field == "values")
    assert "clipped gradients with noise" in clause.private and "under masks" in clause.wire
    assert found.result(run)["privacy"]["epsilon"] > 0
    tables = [each.tables[MEANS] for each in found.journal.rounds(run) if MEANS in each.tables]
    assert {table.columns for table in tables} == {("clipped",)}
