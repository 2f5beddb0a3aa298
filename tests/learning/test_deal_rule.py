"""Dealing domains to clients: algorithm 5 of hFedF, held-out shares, few shots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.numerics.examples import for_all
from tideline.core.errors import ConfigRefused
from tideline.learning.partition.deals import UNSEEN, Deal, Hands, cuts, deal, split_domains

SIZES = {"a": 100, "b": 40, "c": 40, "target": 30}
RULE = Deal("target", clients=3, domains=2)
seeds = st.integers(0, 2**62)


@st.composite
def admitted(draw: st.DrawFn) -> tuple[dict[str, int], int, int]:
    """Sizes of source domains, N and d that algorithm 5 admits."""
    names = draw(st.lists(st.text("abcdé /", min_size=1, max_size=3), min_size=1, max_size=6, unique=True))
    d = draw(st.integers(1, len(names)))
    clients = draw(st.integers(max(2, -(-len(names) // d)), 12))
    least = -(-clients * d // len(names))
    sizes = {name: draw(st.integers(least, least + 30)) for name in names}
    return sizes, clients, d


@for_all(300, admitted(), seeds)
def test_each_client_has_d_domains_and_each_row_one_client(case: tuple[dict[str, int], int, int], seed: int) -> None:
    """For all N, d and |S| that are admitted: exactly d distinct domains a client, every row dealt once, parts of even sizes."""
    sizes, clients, d = case
    dealt = split_domains(sizes, clients, d, seed)
    assert len(dealt) == clients
    assert all(len(parts) == d and all(len(rows) for rows in parts.values()) for parts in dealt)
    for name, n in sizes.items():
        parts = [parts[name] for parts in dealt if name in parts]
        assert sorted(np.concatenate(parts)) == list(range(n))
        assert all((np.diff(part) > 0).all() for part in parts)
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(admitted())
def test_the_b_largest_domains_are_cut_once_more(case: tuple[dict[str, int], int, int]) -> None:
    """a + 1 parts for b = N d mod |S| of them, a = floor(N d / |S|) for the others, which are not larger."""
    sizes, clients, d = case
    a, b = divmod(clients * d, len(sizes))
    cut = cuts(sizes, clients, d)
    assert Counter(cut.values()) == Counter({a + 1: b, a: len(sizes) - b}) - Counter()
    more, less = ([n for name, n in sizes.items() if cut[name] == parts] for parts in (a + 1, a))
    assert not more or not less or min(more) >= max(less)


def test_of_equal_domains_the_first_names_are_the_larger_ones() -> None:
    assert cuts({"c": 5, "b": 9, "a": 9}, 2, 2) == {"a": 2, "b": 1, "c": 1}
    assert cuts({"c": 5, "b": 9, "a": 8}, 2, 2) == {"a": 1, "b": 2, "c": 1}


def test_parts_go_round_the_clients_in_the_order_of_the_seed() -> None:
    """By hand: of the parts a0 a1 b0 c0 the first and the third go to one client, the others to the other."""
    for seed in range(8):
        first, second = (set(parts) for parts in split_domains({"a": 9, "b": 5, "c": 4}, 2, 2, seed))
        assert {frozenset(first), frozenset(second)} == {frozenset("ab"), frozenset("ac")}
    assert len({tuple(split_domains({"a": 9, "b": 5, "c": 4}, 2, 2, seed)[0]) for seed in range(8)}) == 2


def test_the_deal_never_changes() -> None:
    """What a seed draws is part of the format: results of before can be had again."""
    dealt = split_domains({"a": 5, "b": 4}, 2, 1, 7)
    assert [{name: rows.tolist() for name, rows in parts.items()} for parts in dealt] == [
        {"b": [0, 1, 2, 3]},
        {"a": [0, 1, 2, 3, 4]},
    ]
    sites = deal({"a": 6, "b": 5, "t": 9}, Deal("t", 2, 2, seed=7, share=0.25, shots=2))
    given_out = {site: {name: (h.train.tolist(), h.held.tolist()) for name, h in hands.items()} for site, hands in sites.items()}
    assert given_out == {
        "client-1": {"a": ([3, 5], [4]), "b": ([0, 3], []), "t": ([4, 6], [])},
        "client-2": {"a": ([1, 2], [0]), "b": ([1, 2], [4]), "t": ([1, 5], [])},
        "unseen": {"t": ([1, 4, 5, 6], [0, 2, 3, 7, 8])},
    }


def rows_of(sites: Mapping[str, Hands]) -> list[tuple[str, str, list[int], list[int]]]:
    return [(site, name, h.train.tolist(), h.held.tolist()) for site, hands in sites.items() for name, h in hands.items()]


@given(seeds)
def test_equal_seeds_deal_equally(seed: int) -> None:
    backwards = dict(reversed(SIZES.items()))
    rule = replace(RULE, seed=seed, shots=2)
    assert rows_of(deal(SIZES, rule)) == rows_of(deal(backwards, rule))


def parts_of(sites: Mapping[str, Hands]) -> set[tuple[int, ...]]:
    """The rows of each client in each source domain."""
    own = [hands for site, hands in sites.items() if site != UNSEEN]
    return {tuple(sorted([*h.train, *h.held])) for hands in own for name, h in hands.items() if name != "target"}


def test_every_draw_depends_on_the_seed() -> None:
    """Which client gets what, which rows, which are held out, and the shots."""
    one, other = (deal(SIZES, replace(RULE, seed=seed, shots=3)) for seed in (0, 1))
    assert one[UNSEEN]["target"].train.tolist() != other[UNSEEN]["target"].train.tolist()
    assert not parts_of(one) & parts_of(other)
    places = {tuple(tuple(hands) for hands in deal(SIZES, replace(RULE, seed=seed)).values()) for seed in range(12)}
    assert len(places) > 1


def test_what_is_held_out_depends_on_the_seed() -> None:
    """Where a client has the same rows whatever the seed, other ones are held out."""
    sizes, rule = {"a": 50, "b": 50, "target": 5}, Deal("target", 2, 1)
    held: dict[str, set[tuple[int, ...]]] = {"a": set(), "b": set()}
    for seed in range(6):
        for hands in deal(sizes, replace(rule, seed=seed)).values():
            for name in held.keys() & hands.keys():
                held[name].add(tuple(hands[name].held))
    assert all(len(each) == 6 for each in held.values())


def test_a_domain_is_dealt_alike_whatever_the_others_are() -> None:
    """Its shuffle has a seed of its own, so that rows do not move because another domain is left out."""
    parts = [{tuple(p["a"]) for p in split_domains({"a": 30, other: 30}, 2, 2, 5)} for other in ("b", "z")]
    assert parts[0] == parts[1]


@for_all(150, admitted(), st.integers(4, 60), st.floats(0.01, 0.99), st.integers(0, 3), seeds)
def test_shares_and_shots(case: tuple[dict[str, int], int, int], n: int, share: float, shots: int, seed: int) -> None:
    """Each client holds out its share of its own rows; shots are disjoint, for training alone, and score nobody."""
    sizes, clients, d = case
    assume(shots * clients < n and min(sum(map(len, p.values())) for p in split_domains(sizes, clients, d, seed)) > 1)
    rule = Deal("the target", clients, d, seed, share, shots)
    sites = deal({**sizes, "the target": n}, rule)
    unseen = sites.pop(UNSEEN)["the target"]
    assert list(sites) == [f"client-{i + 1}" for i in range(clients)]
    drawn: list[int] = []
    for hands in sites.values():
        own = [hand for name, hand in hands.items() if name != "the target"]
        train, held = sum(len(h.train) for h in own), sum(len(h.held) for h in own)
        assert held == min(max(round((train + held) * share), 1), train + held - 1)
        assert all(not set(h.train) & set(h.held) for h in own)
        if shots:
            assert len(hands["the target"].train) == shots and len(hands["the target"].held) == 0
            drawn += hands["the target"].train.tolist()
    assert len(drawn) == len(set(drawn)) == clients * shots
    if shots:
        assert unseen.train.tolist() == sorted(drawn) and sorted([*unseen.held, *drawn]) == list(range(n))
    else:
        assert unseen.held.tolist() == list(range(n)) and unseen.train.tolist() == [0]


def test_fewer_shots_are_a_part_of_more() -> None:
    few, many = (deal(SIZES, replace(RULE, shots=shots)) for shots in (2, 5))
    for name in ("client-1", "client-2", "client-3"):
        assert set(few[name]["target"].train) < set(many[name]["target"].train)


def test_rows_stay_where_they_are_when_shots_join() -> None:
    """Few-shot learning is compared with none on the same rows of the source domains."""
    none, some = (deal(SIZES, replace(RULE, shots=shots)) for shots in (0, 3))
    assert [each for each in rows_of(some) if each[1] != "target"] == [each for each in rows_of(none) if each[1] != "target"]


@pytest.mark.parametrize(
    ("changed", "path", "words"),
    [
        ({"domains": 4}, "domains", "domains is 4; a client can have 1 to 3 of the source domains: a, b, c"),
        ({"domains": 0}, "domains", "domains is 0"),
        ({"clients": 1, "domains": 3}, "clients", "at least 2"),
        ({"clients": 2, "domains": 1}, "clients", "2 clients with 1 of 3 source domains each would leave a domain unused"),
        ({"clients": 200}, "clients", "rows, which cannot be dealt in 1"),
        ({"leave_out": "targte"}, "leave_out", "There is no domain targte"),
        ({"share": 0.0}, "share", "share is 0"),
        ({"share": 1.0}, "share", "share is 1"),
        ({"shots": -1}, "shots", "-1 shots"),
        ({"target_share": 1.0}, "target_share", "target_share is 1"),
        ({"target_share": 0.0}, "target_share", "target_share is 0"),
        ({"target_share": 0.2, "shots": 1}, "shots", "shots would give clients their labels"),
        ({"shots": 10}, "shots", "3 clients with 10 shots each take 30 of the 30 rows of target"),
    ],
)
def test_what_cannot_be_dealt_is_refused(changed: dict[str, object], path: str, words: str) -> None:
    with pytest.raises(ConfigRefused) as refusal:
        deal(SIZES, replace(RULE, **changed))  # type: ignore[arg-type]
    assert refusal.value.context["path"] == path and words in refusal.value.what and refusal.value.todo


@given(st.integers(2, 60), st.floats(0.01, 0.99), seeds)
def test_a_target_share(n: int, share: float, seed: int) -> None:
    """Each of its rows is at the unseen site, to score or, without its label, for training; the rest stays as it was."""
    sizes, rule = {**SIZES, "target": n}, replace(RULE, seed=seed)
    sites, without = deal(sizes, replace(rule, target_share=share)), deal(sizes, rule)
    own = sites.pop(UNSEEN)["target"]
    assert sorted([*own.held, *own.bare]) == list(range(n)) and not len(own.train)
    assert len(own.held) == min(max(round(n * share), 1), n - 1)
    assert rows_of(sites) == [each for each in rows_of(without) if each[0] != UNSEEN]


def test_what_scores_a_target_depends_on_the_seed() -> None:
    held = {tuple(deal(SIZES, replace(RULE, seed=seed, target_share=0.3))[UNSEEN]["target"].held) for seed in range(6)}
    assert len(held) == 6


def test_what_rows_do_not_suffice_for_is_refused() -> None:
    """A target of one row cannot train and be scored, nor a client; the last domain is the one that is left out."""
    for sizes, rule, reason in (
        ({**SIZES, "target": 1}, replace(RULE, target_share=0.5), "The domain target has a single row"),
        ({"a": 2, "target": 5}, Deal("target", 2, 1), "would get a single row"),
        ({"target": 5}, Deal("target", 2, 1), "there is no source domain"),
    ):
        with pytest.raises(ConfigRefused, match=reason):
            deal(sizes, rule)
    with pytest.raises(ConfigRefused) as refusal:
        deal(SIZES, replace(RULE, leave_out="targte"))
    assert refusal.value.todo == "Use one of: a, b, c, target (did you mean target?)"
