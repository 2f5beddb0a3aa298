"""Robust folds against plain NumPy, and what they promise: no order, bounds, fixed points, too few updates."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.numerics.examples import for_all
from tideline.numerics.aggregation import robust
from tideline.numerics.aggregation.averaging import weighted_sum

Model = dict[str, Tensor]
FOLDS: dict[str, Callable[[Any, int], Model]] = {
    "median": robust.median,
    "trimmed_mean": robust.trimmed_mean,
    "krum": lambda updates, f: dict(updates[robust.krum(updates, f)]),
    "multi_krum": lambda updates, f: robust.trimmed_mean({n: updates[n] for n in robust.multi_krum(updates, f)}, 0),
}
every = pytest.mark.parametrize("rule", sorted(FOLDS))


def model(rng: np.random.Generator, scale: float = 1.0, dtype: torch.dtype = torch.float32) -> Model:
    """A small model: a matrix, a vector, a number and a counter."""
    made = {"w": rng.normal(0, scale, (3, 4)), "b": rng.normal(0, scale, 5), "s": rng.normal(0, scale, ())}
    return {k: torch.as_tensor(v).to(dtype) for k, v in made.items()} | {"n": torch.tensor(int(rng.integers(100)))}


def team(n: int, seed: int = 0, **more: Any) -> dict[str, Model]:
    rng = np.random.default_rng(seed)
    return {f"site-{i:02d}": model(rng, **more) for i in range(n)}


def same(a: Model, b: Model) -> bool:
    """Whether two models have the same bits."""
    return a.keys() == b.keys() and all(a[k].dtype == b[k].dtype and a[k].numpy().tobytes() == b[k].numpy().tobytes() for k in a)


def rows(updates: dict[str, Model], name: str) -> Any:
    """One field of all updates, in float64."""
    return np.stack([updates[k][name].double().numpy() for k in sorted(updates)])


def naive_scores(updates: dict[str, Model], f: int) -> list[float]:
    """Krum's scores, from its definition."""
    flat = [np.concatenate([u[k].double().numpy().ravel() for k in ("w", "b", "s")]) for _, u in sorted(updates.items())]
    distances = [[float(((a - b) ** 2).sum()) for j, b in enumerate(flat) if j != i] for i, a in enumerate(flat)]
    return [sum(sorted(d)[: len(flat) - f - 2]) for d in distances]


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_the_median_is_numpy_s(n: int) -> None:
    """Odd and even numbers of updates; counters take the lower of the two in the middle."""
    updates = team(n)
    told = robust.median(updates)
    for name in ("w", "b", "s"):
        np.testing.assert_allclose(told[name].numpy(), np.median(rows(updates, name), axis=0), rtol=1e-6, atol=1e-7)
    assert int(told["n"]) == sorted(int(u["n"]) for u in updates.values())[(n - 1) // 2]


@pytest.mark.parametrize(("n", "f"), [(3, 1), (7, 2), (8, 0), (9, 4)])
def test_the_trimmed_mean_is_the_mean_of_what_is_left(n: int, f: int) -> None:
    updates = team(n)
    told = robust.trimmed_mean(updates, f)
    for name in ("w", "b", "s"):
        expected = np.sort(rows(updates, name), axis=0)[f : n - f].mean(axis=0)
        np.testing.assert_allclose(told[name].numpy(), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("n", "f"), [(5, 1), (7, 2), (9, 1)])
def test_krum_chooses_by_its_definition(n: int, f: int) -> None:
    """The least sum of squared distances to the n - f - 2 nearest; multi-Krum the n - f - 2 least of them."""
    for seed in range(5):
        updates = team(n, seed)
        names, scores = sorted(updates), naive_scores(updates, f)
        order = sorted(range(n), key=lambda i, scores=scores: scores[i])  # type: ignore[misc]
        assert robust.krum(updates, f) == names[order[0]]
        assert robust.multi_krum(updates, f) == tuple(sorted(names[i] for i in order[: n - f - 2]))


def test_clipping_is_its_formula() -> None:
    """w + sum a_i c_i (w_i - w); c_i by a given bound, or by the lower median of the norms."""
    start, updates = team(1, 9)["site-00"], team(4)
    shares = dict(zip(sorted(updates), (0.1, 0.2, 0.3, 0.4), strict=True))
    norms = {n: np.sqrt(sum(float(((u[k] - start[k]).double() ** 2).sum()) for k in ("w", "b", "s"))) for n, u in updates.items()}
    for bound, most in ((2.5, 2.5), (0.0, sorted(norms.values())[1])):
        told, factors = robust.clip(start, updates, shares, bound)
        assert factors == pytest.approx({n: min(1.0, most / norm) for n, norm in norms.items()}, rel=1e-6)
        for name in ("w", "b", "s"):
            moves = sum(shares[n] * factors[n] * (u[name] - start[name]).double() for n, u in updates.items())
            torch.testing.assert_close(told[name].double(), start[name].double() + moves, rtol=1e-5, atol=1e-6)
        assert int(told["n"]) == sorted(int(u["n"]) for u in updates.values())[1]


def test_a_bound_that_nobody_reaches_is_the_weighted_mean_bit_for_bit() -> None:
    """Clipping costs nothing where it clips nothing; counters, which a mean takes the maximum of, aside."""
    start, updates = team(1, 9)["site-00"], team(4)
    shares = dict(zip(sorted(updates), (0.1, 0.2, 0.3, 0.4), strict=True))
    told, factors = robust.clip(start, updates, shares, 1e9)
    plain = weighted_sum((shares[name], updates[name]) for name in sorted(updates))
    assert set(factors.values()) == {1.0}
    assert same({k: told[k] for k in "wbs"}, {k: plain[k] for k in "wbs"})


def test_a_clipped_update_lies_at_the_bound() -> None:
    """However far a site goes, it moves the model by its share of the bound at most."""
    start, far = team(1, 9)["site-00"], team(1, 1, scale=1e30)["site-00"]
    assert robust.clip(start, {"a": start}, {"a": 1.0}, 0.5)[1] == {"a": 1.0}
    told, factors = robust.clip(start, {"a": far}, {"a": 1.0}, 0.5)
    assert robust.distance(start, far) * factors["a"] == pytest.approx(0.5)
    assert robust.distance(start, told) == pytest.approx(0.5, rel=1e-5)


@every
def test_the_order_of_arrival_changes_no_bit(rule: str) -> None:
    updates = team(7)
    told = FOLDS[rule](updates, 2)
    for seed in range(5):
        names = list(np.random.default_rng(seed).permutation(sorted(updates)))
        assert same(FOLDS[rule]({n: updates[n] for n in names}, 2), told)


def test_the_order_of_arrival_changes_no_bit_of_a_clipped_mean() -> None:
    start, updates = team(1, 9)["site-00"], team(5)
    shares = dict.fromkeys(updates, 0.2)
    told = robust.clip(start, updates, shares)[0]
    back = list(reversed(updates))
    assert same(robust.clip(start, {n: updates[n] for n in back}, {n: shares[n] for n in back})[0], told)


@every
@for_all(30, data=st.data())
def test_who_sent_which_update_changes_no_bit(rule: str, data: st.DataObject) -> None:
    """Names given anew to the same updates, among them equal ones and zeros of both signs: the same bytes."""
    updates = team(7, data.draw(st.integers(0, 1000)))
    updates["site-03"] = {k: -torch.zeros_like(v) for k, v in updates["site-03"].items()}
    updates["site-04"] = {k: torch.zeros_like(v) for k, v in updates["site-03"].items()}
    names = data.draw(st.permutations(sorted(updates)))
    told, again = (FOLDS[rule](u, 2) for u in (updates, dict(zip(names, updates.values(), strict=True))))
    # Krum's choice is one site's own model: where it has zeros, they keep their signs.
    assert all(torch.equal(told[k], again[k]) for k in told) if rule == "krum" else same(told, again)


@every
def test_equal_updates_are_a_fixed_point(rule: str) -> None:
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        one = model(np.random.default_rng(4), dtype=dtype)
        told = FOLDS[rule]({f"s{i}": one for i in range(7)}, 2)
        assert all(torch.equal(told[k], one[k]) and told[k].dtype == one[k].dtype for k in one)


@pytest.mark.parametrize("rule", ["median", "trimmed_mean"])
@for_all(40, data=st.data())
def test_wrong_updates_cannot_leave_the_range_of_the_right_ones(rule: str, data: st.DataObject) -> None:
    """f < N / 2 of any finite values at all: each coordinate stays between the right ones' least and largest."""
    n = data.draw(st.integers(1, 9))
    f = data.draw(st.integers(0, (n - 1) // 2))
    numbers = st.floats(-(2.0**100), 2.0**100, width=32)
    right = data.draw(st.lists(numbers, min_size=n - f, max_size=n - f))
    wrong = data.draw(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=f, max_size=f))
    updates = {f"s{i}": {"w": torch.tensor([v])} for i, v in enumerate([*wrong, *right])}
    told = float(FOLDS[rule](updates, f)["w"])
    assert min(right) <= told <= max(right)


@pytest.mark.parametrize("rule", ["krum", "multi_krum"])
def test_krum_leaves_far_updates_out(rule: str) -> None:
    """Two that lie together far away are not chosen among seven, wherever they stand."""
    near = team(7)
    for bad in itertools.combinations(sorted(near), 2):
        updates = {n: {k: v * (1000 if n in bad else 1) for k, v in u.items()} for n, u in near.items()}
        chosen = {robust.krum(updates, 2)} if rule == "krum" else set(robust.multi_krum(updates, 2))
        assert chosen and not chosen & set(bad)


def test_numbers_too_large_to_square_are_left_out() -> None:
    """Distances that overflow are infinite, which is farther than all others; nothing becomes NaN."""
    updates = team(5, dtype=torch.float64)
    updates["site-00"] = {k: torch.full_like(v, 1.7e308) if k != "n" else v for k, v in updates["site-00"].items()}
    assert robust.krum(updates, 1) != "site-00"
    told, factors = robust.clip(updates["site-01"], updates, dict.fromkeys(updates, 0.2))
    assert factors["site-00"] == 0.0 and all(bool(v.isfinite().all()) for v in told.values())


@every
@pytest.mark.parametrize("size", [7, 30])
def test_the_size_of_a_block_changes_nothing(rule: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = FOLDS[rule](team(7), 2)
    monkeypatch.setattr(robust, "BLOCK", size)
    assert same(FOLDS[rule](team(7), 2), whole)


@every
def test_too_few_updates_are_refused(rule: str) -> None:
    """Krum needs 2 f + 3, the others 2 f + 1; the message has rule and numbers."""
    least = robust.least(rule, 1)
    assert least == (5 if "krum" in rule else 3)
    FOLDS[rule](team(least), 1)
    with pytest.raises(ValueError, match=rf"needs {least} updates for 1 wrong ones; there are {least - 1}"):
        FOLDS[rule](team(least - 1), 1)
    with pytest.raises(ValueError, match="needs 1 updates"):
        FOLDS["median"]({}, 0)
    with pytest.raises(ValueError, match="clip needs 1 update"):
        robust.clip({}, {}, {})


def test_updates_that_differ_in_their_fields_are_refused() -> None:
    for odd in ({"v": torch.zeros(2)}, {"w": torch.zeros(3)}, {"w": torch.zeros(2).double()}):
        with pytest.raises(ValueError, match="differ"):
            robust.median({"a": {"w": torch.zeros(2)}, "b": odd, "c": {"w": torch.zeros(2)}})


def test_arguments_stay_as_they_are() -> None:
    updates, before = team(7), team(7)
    for rule in FOLDS:
        told = FOLDS[rule](updates, 2)
        if rule != "krum":
            for v in told.values():
                v.add_(1)
    robust.clip(updates["site-00"], updates, dict.fromkeys(updates, 1 / 7))[0]["w"].add_(1)
    assert all(same(updates[n], before[n]) for n in before)
