"""Dealing rows to unlike devices: numbers, classes, sides and domains, as ST-LF's experiments have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.numerics.examples import for_all
from tideline.core.errors import ConfigRefused
from tideline.core.run import Role
from tideline.learning.partition.deals import Hands
from tideline.learning.partition.dirichlet import CASES, Dirichlet, Words, apportioned, class_sets, deal, drawn, roles

Labels = Mapping[str, Words]
RULE = Dirichlet(take=("a",), scale=0.05)
seeds = st.integers(0, 2**62)


def set_of(sizes: Mapping[str, int], classes: int = 10) -> dict[str, Words]:
    """Domains of so many rows, their classes in turn."""
    return {name: np.array([str(i % classes) for i in range(n)]) for name, n in sizes.items()}


LABELS = set_of({"a": 6000, "b": 5000, "c": 4000})


@st.composite
def rules(draw: st.DrawFn) -> Dirichlet:
    case = draw(st.sampled_from(CASES))
    clients = draw(st.integers(2, 12))
    return Dirichlet(
        clients,
        labelled=draw(st.integers(1, clients)),
        case=case,
        take=draw(st.sampled_from([("b",), ("a",)] if case == "single" else [(), ("c", "a")])),
        classes=draw(st.none() | st.integers(2, 10)),
        alpha=draw(st.floats(1, 20)),
        scale=draw(st.floats(0.03, 0.08)),
        share=draw(st.floats(0.05, 0.6)),
        seed=draw(seeds),
    )


def dealt(rule: Dirichlet, labels: Labels = LABELS) -> dict[str, Hands]:
    """A deal; draws for which the rows do not suffice are passed over."""
    try:
        return deal(labels, rule)
    except ConfigRefused as error:
        assume(error.context["path"] != "scale")
        raise


def sizes(hands: Hands) -> tuple[int, int, int]:
    """Rows for training, without labels, and held out."""
    sides = [(len(h.train), len(h.bare), len(h.held)) for h in hands.values()]
    return tuple(map(sum, zip(*sides, strict=True)))  # type: ignore[return-value]


@for_all(50, rules())
def test_no_row_is_dealt_twice(rule: Dirichlet) -> None:
    """Over all devices and sides; rows are in the order of their domain, and of domains that are taken."""
    parts: dict[str, list[int]] = {}
    for hands in dealt(rule).values():
        for name, hand in hands.items():
            for side in (hand.train, hand.bare, hand.held):
                assert (np.diff(side) > 0).all()
                parts.setdefault(name, []).extend(side.tolist())
    assert set(parts) <= set(rule.take or LABELS)
    for name, rows in parts.items():
        assert len(rows) == len(set(rows)) and min(rows) >= 0 and max(rows) < len(LABELS[name])


@for_all(50, rules())
def test_numbers_of_rows(rule: Dirichlet) -> None:
    """As they were drawn: a share of the labelled rows is held out, of an unlabelled device a share of all, and at least one."""
    sites = dealt(rule)
    assert list(sites) == [f"client-{i + 1}" for i in range(rule.clients)] == list(roles(rule))
    for i, device in enumerate(drawn({name: LABELS[name] for name in sorted(rule.take or LABELS)}, rule)):
        train, bare, held = sizes(sites[device.name])
        whole = device.labelled or device.bare
        assert held == min(max(round(whole * rule.share), 1), whole - 1) and train + held == whole
        assert (device.labelled > 0) == (i < rule.labelled) == (roles(rule)[device.name] is not Role.TARGET)
        assert bare == (device.bare if device.labelled else 0) and (bare > 0) == (i < rule.labelled)


@for_all(50, rules())
def test_classes_of_a_device(rule: Dirichlet) -> None:
    """As many as are asked for, four of one domain and else all; an unlabelled device has those of a labelled one."""
    names = [str(c) for c in range(10)]
    sets = class_sets(names, rule)
    n = rule.classes or (4 if rule.case == "single" else 10)
    assert all(len(set(each)) == len(each) == n for each in sets)
    assert all(each in sets[: rule.labelled] for each in sets)
    for own, hands in zip(sets, dealt(rule).values(), strict=True):
        assert seen(LABELS, hands) <= set(own)


def seen(labels: Labels, hands: Hands) -> set[str]:
    return {c for name, h in hands.items() for side in (h.train, h.bare, h.held) for c in labels[name][side].tolist()}


@for_all(50, rules())
def test_equal_seeds_deal_equally(rule: Dirichlet) -> None:
    """And the order in which domains stand or are named means nothing."""
    backwards = dict(reversed(LABELS.items()))
    one, other = dealt(rule), dealt(replace(rule, take=rule.take[::-1]), backwards)
    assert as_plain(one) == as_plain(other)


def as_plain(sites: Mapping[str, Hands]) -> list[object]:
    return [(s, n, h.train.tolist(), h.bare.tolist(), h.held.tolist()) for s, hands in sites.items() for n, h in hands.items()]


@pytest.mark.parametrize("case", CASES)
def test_every_draw_depends_on_the_seed(case: str) -> None:
    rule = replace(RULE, case=case, take=("a",) if case == "single" else ())
    one, other = (deal(LABELS, replace(rule, seed=seed)) for seed in (0, 1))
    assert all(sizes(one[name])[0] != sizes(other[name])[0] for name in list(one)[:3])
    assert as_plain(one) != as_plain(other)
    if case == "split":
        assert [list(hands) for hands in one.values()] != [list(hands) for hands in other.values()]


def test_the_cases() -> None:
    """Mixed devices have rows of all domains; split ones of one each, and not all of the same."""
    mixed, split = (deal(LABELS, replace(RULE, case=case, take=(), seed=3)) for case in ("mixed", "split"))
    assert all(set(hands) == set(LABELS) for hands in mixed.values())
    assert all(len(hands) == 1 for hands in split.values()) and len({name for hands in split.values() for name in hands}) > 1
    assert list(deal(LABELS, RULE)["client-1"]) == ["a"]


def test_numbers_are_those_of_the_paper() -> None:
    """Normal(1600, 267) with labels and Normal(200, 33) without, or Normal(1000, 167); over many devices, within four sigma."""
    n = 400
    rule = Dirichlet(2 * n, n, take=("a",), classes=10)
    found = list(drawn({"a": LABELS["a"]}, rule))
    for amounts, mean, deviation in (
        ([d.labelled for d in found[:n]], 1600, 267),
        ([d.bare for d in found[:n]], 200, 33),
        ([d.bare for d in found[n:]], 1000, 167),
    ):
        assert abs(np.mean(amounts) - mean) < 4 * deviation / n**0.5
        assert abs(np.std(amounts) - deviation) < 4 * deviation / (2 * n) ** 0.5


def test_mixes_are_those_of_the_paper() -> None:
    """Shares of a class from Dir(5, ..., 5) over ten: mean 1/10, variance 0.1 * 0.9 / 51."""
    found = drawn({"a": LABELS["a"]}, Dirichlet(400, 1, take=("a",), classes=10))
    shares = np.array([[n / (d.labelled + d.bare) for n in d.counts.values()] for d in found])
    assert np.allclose(shares.mean(0), 0.1, atol=0.01) and np.isclose(shares.var(), 0.09 / 51, rtol=0.1)


def test_the_scale_changes_no_draw() -> None:
    whole, half = (list(drawn({"a": LABELS["a"]}, replace(RULE, scale=scale))) for scale in (0.1, 0.05))
    for one, other in zip(whole, half, strict=True):
        assert abs(one.labelled - 2 * other.labelled) <= 2 and list(one.counts) == list(other.counts)


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=12), st.integers(0, 500))
def test_rows_are_apportioned(weights: list[float], n: int) -> None:
    p = np.array(weights) / sum(weights)
    counts = apportioned(p, n)
    assert sum(counts) == n and all(abs(count - share * n) < 1 + 1e-9 for count, share in zip(counts, p, strict=True))


def test_the_deal_never_changes() -> None:
    """What a seed draws is part of the format: results of before can be had again."""
    labels = set_of({"a": 60, "b": 40}, 3)
    rule = Dirichlet(3, 2, "mixed", scale=0.008, seed=5)
    found = {
        site: {name: (h.train.tolist(), h.bare.tolist(), h.held.tolist()) for name, h in hands.items()}
        for site, hands in deal(labels, rule).items()
    }
    assert found == {
        "client-1": {"a": ([16, 26, 58], [33], [17]), "b": ([8, 10, 18, 35], [22], [])},
        "client-2": {"a": ([0, 7, 8, 9, 11, 12, 14, 15, 52, 57, 59], [31, 53], []), "b": ([14, 38], [], [9])},
        "client-3": {"a": ([13, 29, 43, 44, 54, 55], [], [1]), "b": ([0, 3], [], [])},
    }


@pytest.mark.parametrize(
    ("changed", "path", "words"),
    [
        ({"clients": 1, "labelled": 1}, "clients", "clients is 1"),
        ({"labelled": 0}, "labelled", "labelled is 0"),
        ({"labelled": 11}, "labelled", "labelled is 11"),
        ({"case": "mix"}, "case", "case is mix"),
        ({"alpha": 0.0}, "alpha", "alpha is 0"),
        ({"alpha": float("nan")}, "alpha", "alpha is nan"),
        ({"scale": 0.0}, "scale", "scale is 0"),
        ({"scale": float("inf")}, "scale", "scale is inf"),
        ({"share": 1.0}, "share", "share is 1"),
        ({"role": Role.TARGET}, "role", "role is target"),
        ({"take": ("z",)}, "take", "There is no domain z to take"),
        ({"take": ("a", "a"), "case": "mixed"}, "take", "take names a domain twice"),
        ({"take": ()}, "take", "the case single needs one domain; the deal takes a, b, c"),
        ({"case": "split"}, "take", "the case split needs two domains or more; the deal takes a"),
        ({"classes": 1}, "classes", "classes is 1; there are 10 classes"),
        ({"classes": 11}, "classes", "classes is 11; there are 10 classes"),
        ({"scale": 0.001}, "scale", "With scale 0.001 client-"),
    ],
)
def test_what_cannot_be_dealt_is_refused(changed: dict[str, object], path: str, words: str) -> None:
    with pytest.raises(ConfigRefused) as refusal:
        deal(LABELS, replace(RULE, **changed))  # type: ignore[arg-type]
    assert refusal.value.context["path"] == path and words in refusal.value.what and refusal.value.todo


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(2))
def test_too_few_rows_are_refused_with_a_scale_that_fits(case: str, seed: int) -> None:
    """What is there and what is asked for; and the scale that is told can be dealt, while a little more cannot."""
    rule = Dirichlet(case=case, take=("a",) if case == "single" else (), seed=seed, scale=3.0)
    with pytest.raises(ConfigRefused, match=r"(has|have) \d+ rows of class \d; \d+ are asked for with scale 3") as refusal:
        deal(LABELS, rule)
    fits = float(refusal.value.todo.split("a scale of ")[1].split()[0])
    deal(LABELS, replace(rule, scale=fits))
    with pytest.raises(ConfigRefused, match="are asked for"):
        deal(LABELS, replace(rule, scale=fits * 1.25))


def test_where_no_scale_fits_none_is_told() -> None:
    with pytest.raises(ConfigRefused, match="are asked for") as refusal:
        deal(set_of({"a": 40}), Dirichlet(12, 6, take=("a",)))
    assert refusal.value.todo == "Ask for fewer clients, or add rows"


def test_one_class_alone_cannot_be_learnt() -> None:
    rule = Dirichlet(6, 6, take=("a",), classes=2, alpha=0.1, scale=0.02)
    with pytest.raises(ConfigRefused, match="would have labels of class"):
        deal(LABELS, rule)


def test_split_devices_have_the_classes_that_every_domain_has() -> None:
    """A class that one domain lacks is nobody's; pooled domains have it."""
    labels = {"a": LABELS["a"], "b": set_of({"b": 5000}, 3)["b"]}
    rule = Dirichlet(case="split", scale=0.05, alpha=50)
    assert set().union(*(seen(labels, hands) for hands in deal(labels, rule).values())) == {"0", "1", "2"}
    assert len(set().union(*(seen(labels, hands) for hands in deal(labels, replace(rule, case="mixed")).values()))) == 10
    with pytest.raises(ConfigRefused, match="classes is 4; there are 3 classes that every domain has"):
        deal(labels, replace(rule, classes=4))
