"""Dealing rows to sites, and splitting a site's rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.numerics.examples import for_all
from tideline.core.errors import ConfigRefused, DataRefused
from tideline.core.rows import MemoryRows
from tideline.core.run import Role
from tideline.core.step import Data, View
from tideline.learning.formats.holdings import Holdings, Rows, listed, split_beside, split_rows
from tideline.learning.partition.deals import UNSEEN, Deal, Hands, at_random, by_domain, cuts, deal, split_domains

names = st.lists(st.text("abc", min_size=1), min_size=1, max_size=6, unique=True).map(tuple)


@given(names, st.integers(1, 20))
def test_the_last_site_has_the_last_domain_to_itself(domains: tuple[str, ...], n_sites: int) -> None:
    """One domain per site; the last domain goes to the last site and, where there is another, to no other site."""
    dealt = by_domain(domains, n_sites)
    assert len(dealt) == n_sites
    assert dealt[-1] == domains[-1]
    assert len(domains) == 1 or domains[-1] not in dealt[:-1]


def test_sites_take_turns_through_the_domains() -> None:
    """With more sites than domains the others are gone through again."""
    assert by_domain(("a", "b", "c"), 6) == ("a", "b", "a", "b", "a", "c")
    assert by_domain(("a", "b", "c"), 3) == ("a", "b", "c")
    assert by_domain(("a", "b", "c"), 2) == ("a", "c")


@given(st.integers(0, 300), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_random_parts_cover_all_rows_once(n_rows: int, n_parts: int, seed: int) -> None:
    """Parts are disjoint, cover everything, and differ in size by at most one."""
    parts = at_random(n_rows, n_parts, seed)
    assert len(parts) == n_parts
    assert sorted(np.concatenate(parts)) == list(range(n_rows))
    sizes = [len(p) for p in parts]
    assert max(sizes) - min(sizes) <= 1


def test_a_seed_fixes_the_deal() -> None:
    first, again, other = at_random(50, 2, 7), at_random(50, 2, 7), at_random(50, 2, 8)
    assert np.array_equal(first[0], again[0])
    assert not np.array_equal(first[0], other[0])


@pytest.mark.parametrize(("n_rows", "n_parts"), [(5, 0), (-1, 2)])
def test_impossible_deals_are_refused(n_rows: int, n_parts: int) -> None:
    with pytest.raises(ConfigRefused):
        at_random(n_rows, n_parts, 0)


@pytest.mark.parametrize(("domains", "n_sites"), [((), 3), (("a",), 0)])
def test_nothing_to_deal_is_refused(domains: tuple[str, ...], n_sites: int) -> None:
    with pytest.raises(ConfigRefused):
        by_domain(domains, n_sites)


@given(st.integers(2, 500), st.integers(0, 2**32 - 1), st.floats(0, 1))
def test_a_split_is_a_partition(n: int, seed: int, share: float) -> None:
    """Every row is on exactly one side, in order; neither side is empty, and the held-out share is as asked."""
    train, held = split_rows(n, seed, share)
    assert sorted([*train, *held]) == list(range(n))
    assert sorted(train) == train.tolist() and sorted(held) == held.tolist()
    assert len(train) >= 1
    assert len(held) == min(max(round(n * share), 1), n - 1)


def test_the_split_never_changes() -> None:
    """The default draw is part of the format: the same rows stay held out across releases."""
    assert split_rows(10)[1].tolist() == [2, 8]
    assert split_rows(20)[1].tolist() == [1, 8, 18, 19]


@pytest.mark.parametrize("n", [0, 1])
def test_one_row_cannot_be_split(n: int) -> None:
    with pytest.raises(DataRefused):
        split_rows(n)


def split_at(n: int, test_idx: np.ndarray[Any, Any]) -> tuple[Rows, Rows]:
    """The split of data that list their held-out rows."""
    return split_beside(n, listed(n, test_idx, "test_idx", "held-out row"), None)


@given(st.integers(1, 100).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)))))
def test_named_rows_are_held_out(case: tuple[int, set[int]]) -> None:
    """An explicit test_idx decides, in any order, and the rest is for training; it may name all rows, or none."""
    n, held_out = case
    train, held = split_at(n, np.array(list(held_out), dtype=np.int32))
    assert held.tolist() == sorted(held_out)
    assert train.tolist() == sorted(set(range(n)) - held_out)


BAD_INDICES = [
    (np.array([0, 5]), "names row 5; the rows are 0 to 4"),
    (np.array([-1]), "names row -1"),
    (np.array([1, 1]), "twice"),
    (np.array([0.0]), "whole numbers"),
    (np.array([True, False, False, False, False]), "whole numbers"),
    (np.array([[0, 1]]), "shape (1, 2)"),
]


@pytest.mark.parametrize(("test_idx", "said"), BAD_INDICES)
def test_bad_indices_are_refused(test_idx: np.ndarray, said: str) -> None:
    with pytest.raises(DataRefused) as refusal:
        split_at(5, test_idx)
    assert said in refusal.value.what


def test_a_view_never_shows_a_targets_training_labels() -> None:
    """Even where labels are there, a target sees its training rows without them; other roles and rows have them."""
    data = Data(MemoryRows(torch.zeros(3, 2)), torch.tensor([0, 1, 0]), torch.zeros(3, dtype=torch.int64), ("a",))
    holdings = Holdings(data, data)
    assert holdings.view(View.TRAIN, Role.TARGET).y is None
    assert holdings.view(View.HELD_OUT, Role.TARGET).labelled
    assert holdings.view(View.TRAIN, Role.SOURCE).labelled
    assert holdings.view(View.TRAIN, Role.PEER).labelled


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
