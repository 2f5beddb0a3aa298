"""The exact sum of every set of sites that remains and is large enough; of smaller ones nothing."""

from __future__ import annotations

from itertools import combinations
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.budgets import examples
from tests.secure.play import Play, names, plain_sum, steps, terms_of, values_of
from tideline.core.errors import ConfigRefused
from tideline.secure.errors import RangeRefused, TooFewSites
from tideline.secure.graph import Design
from tideline.secure.rounds.coordinator import Summed
from tideline.secure.rounds.messages import Roll
from tideline.secure.rounds.pairs import Masking, Pairs
from tideline.secure.rounds.terms import Place, Terms

EIGHT = names(8)


@pytest.fixture(scope="module")
def eight() -> Play:
    return Play(terms_of(EIGHT))


def test_so_many_are_enough() -> None:
    assert [terms_of(names(n)).enough for n in (3, 4, 8, 9, 64, 100)] == [3, 3, 6, 7, 43, 67]


@pytest.mark.parametrize("bits", [32, 64])
def test_every_set_of_six_of_eight_has_its_exact_sum(bits: int) -> None:
    """All 37 sets that may remain when values have come."""
    play = Play(terms_of(EIGHT, bits=bits))
    sets = [each for size in (6, 7, 8) for each in combinations(EIGHT, size)]
    assert len(sets) == 37
    for survivors in sets:
        opened = play.opened(survivors)
        assert steps(play, opened) == plain_sum(play.terms, survivors)
        assert (opened.sites, opened.wrong) == (survivors, ())


def test_of_every_smaller_set_nothing_is_made(eight: Play) -> None:
    """Neither where too few send values, nor where too few of those who did unmask them."""
    for size in range(6):
        for few in combinations(EIGHT, size):
            with pytest.raises(TooFewSites, match="and 6 are needed"):
                eight.summed(few)
    for size in range(6):
        for few in combinations(EIGHT[1:], size):
            with pytest.raises(TooFewSites, match="Ask the same survivors again"):
                eight.opened(EIGHT[1:], few)


def test_six_answers_are_enough_and_any_six_give_the_same(eight: Play) -> None:
    expected = plain_sum(eight.terms, EIGHT)
    for six in combinations(EIGHT, 6):
        assert steps(eight, eight.opened(EIGHT, six)) == expected


@pytest.mark.parametrize("keyed", [7, 8])
@pytest.mark.parametrize("shared", [6, 7])
def test_sites_drop_out_at_every_step(keyed: int, shared: int) -> None:
    """Before their keys, before their shares, before their values, before they unmask."""
    play = Play(terms_of(EIGHT), keyed_by=EIGHT[:keyed], shared_by=EIGHT[:shared])
    for survivors in combinations(EIGHT[:shared], 6):
        assert steps(play, play.opened(survivors)) == plain_sum(play.terms, survivors)


def test_too_few_keys_or_shares_end_the_round() -> None:
    with pytest.raises(TooFewSites, match="5 of 8 sites have sent keys, and 6 are needed for round 3 of train"):
        _ = Play(terms_of(EIGHT), keyed_by=EIGHT[:5]).roll
    with pytest.raises(TooFewSites, match="have sent shares"):
        _ = Play(terms_of(EIGHT), shared_by=EIGHT[:5]).delivered


def test_what_travels_is_not_what_was_hidden(eight: Play) -> None:
    """Masked values are spread over all of the numbers, whatever they hide."""
    play = Play(terms_of(EIGHT, length=4096))
    for name in EIGHT:
        masked = play.mask(name, np.zeros(4096, np.uint32))[1].values
        assert abs(masked.astype(np.float64).mean() / 2**32 - 0.5) < 0.03 and len(set(masked.tolist())) > 4090


def test_equal_roots_give_equal_messages() -> None:
    """A site that is killed and goes on sends what it would have sent."""
    one, two = Play(terms_of(EIGHT)), Play(terms_of(EIGHT))
    assert one.begun[EIGHT[0]][1] == two.begun[EIGHT[0]][1]
    marks = [[(p.key_mark, p.self_mark) for p in play.shared[EIGHT[0]][1].parcels] for play in (one, two)]
    assert marks[0] == marks[1]
    assert one.masked[EIGHT[0]][1].values.tolist() == two.masked[EIGHT[0]][1].values.tolist()


def test_masks_are_of_one_place_and_one_order() -> None:
    """Other terms of the same sites, values and roots have other masks."""
    others = [
        Play(terms_of(EIGHT)),
        Play(terms_of(EIGHT), order="b3-other"),
        Play(terms_of(EIGHT, place=Place("run-2", "train", 3))),
        Play(terms_of(EIGHT, place=Place("run-1", "train", 4))),
        Play(terms_of(EIGHT, place=Place("run-1", "train", 3, attempt=1))),
    ]
    first = [play.mask(EIGHT[0], np.zeros(5, np.uint32))[1].values.tolist() for play in others]
    assert len({tuple(each) for each in first}) == len(others)


def test_masks_are_of_one_roll_and_one_set_of_authors(eight: Play) -> None:
    """By the keys of any site, and by who sent shares: the same secrets have other masks where either is another."""
    anna, bert, key = EIGHT[0], EIGHT[1], eight.begun[EIGHT[0]][0].keys.mask_key
    fewer = Roll(eight.terms, eight.roll.adverts[:7])
    uses = [
        Masking(Pairs(roll), "b3", authors)
        for roll, authors in ((eight.roll, EIGHT), (eight.roll, EIGHT[:7]), (fewer, EIGHT[:7]), (fewer, EIGHT[:6]))
    ]
    assert len({each.own(anna, bytes(32)) for each in uses}) == 4
    assert len({mask for each in uses for _, mask in each.pairs_of(anna, key, [bert])}) == 4


@settings(max_examples=examples(30))
@given(st.integers(3, 12), st.integers(0, 2**32), st.sampled_from([32, 64]))
def test_any_sizes_and_any_survivors(n: int, seed: int, bits: int) -> None:
    rng = Random(seed)
    play = Play(terms_of(names(n), length=rng.randint(1, 9), bits=bits))
    survivors = sorted(rng.sample(play.terms.sites, rng.randint(play.terms.enough, n)))
    assert steps(play, play.opened(survivors)) == plain_sum(play.terms, survivors)


@pytest.fixture(scope="module")
def hundred() -> tuple[Play, ...]:
    """Rounds of a hundred sites, of other runs and so with other graphs; one in the quick suite, two in the deep one."""
    return tuple(Play(terms_of(names(100), length=2, place=Place(f"run-{i}", "train", 3))) for i in range(examples(10) // 5))


@pytest.mark.nightly(job="numbers")
def test_a_hundred_sites_have_neighbours(hundred: tuple[Play, ...]) -> None:
    graphs = [play.delivered.pairs.neighbours for play in hundred]
    assert all(graphs.count(each) == 1 for each in graphs)
    assert {len(each) for graph in graphs for each in graph.values()} == {78}
    assert all(len(play.shared[name][1].parcels) == 79 for play in hundred for name in names(100))


def test_sites_that_share_masks_with_some_of_the_others_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eighteen sites with ten neighbours each, as the design gives a hundred sites 78: those that remain are summed exactly."""
    monkeypatch.setattr("tideline.secure.rounds.pairs.design", lambda present, sites: Design(10, 4))
    play, rng = Play(terms_of(names(18))), Random(0)
    assert {len(parcels.parcels) for _, parcels in play.shared.values()} == {11}
    for remaining in (13, 13, 15, 18):
        survivors = sorted(rng.sample(play.terms.sites, remaining))
        assert steps(play, play.opened(survivors)) == plain_sum(play.terms, survivors)


@pytest.mark.nightly(job="numbers")
@pytest.mark.parametrize("draw", range(10))
def test_a_hundred_sites_are_summed(hundred: tuple[Play, ...], draw: int) -> None:
    """Sum 200 draws, ten times 20, of at least 67 sites that remain in the deep suite; fewer in the quick one."""
    rng = Random(draw)
    for at in range(examples(20)):
        play = hundred[at % len(hundred)]
        survivors = sorted(rng.sample(play.terms.sites, 67 if at % 4 < 2 else rng.randint(67, 100)))
        assert steps(play, play.opened(survivors)) == plain_sum(play.terms, survivors)


def test_the_sum_is_that_of_the_plain_run() -> None:
    """What is decoded has the bytes of what a run without masks adds up on the same grid, in any order of arrival."""
    play = Play(terms_of(EIGHT))
    plain = play.terms.grid.zeros(play.terms.length)
    for name in EIGHT:
        plain += values_of(play.terms, name)
    decoded = [play.terms.grid.decode(each, np.float32).tobytes() for each in (plain, play.opened(reversed(EIGHT)).total)]
    assert decoded[0] == decoded[1]


def test_terms_that_are_none_are_refused() -> None:
    """Before anybody is asked."""
    good: dict[str, Any] = {"place": Place("r", "p", 1), "sites": names(8), "length": 5}
    good |= {"clip": 1.0, "bits": 32, "exponent": 27}
    assert Terms(**good)
    with pytest.raises(RangeRefused, match=r"it could wrap\. Choose larger steps"):
        Terms(**{**good, "exponent": 28})
    with pytest.raises(ConfigRefused, match="of 3 to 3500 sites, and 2 are named"):
        Terms(**{**good, "sites": names(2)})
    with pytest.raises(ConfigRefused, match="not sorted"):
        Terms(**{**good, "sites": names(8)[::-1]})
    with pytest.raises(RangeRefused, match="A sum is of 0 values"):
        Terms(**{**good, "length": 0})


def test_a_sum_is_not_changed_by_opening_it(eight: Play) -> None:
    summed: Summed = eight.summed(EIGHT)
    before = summed.total.tolist()
    for _ in range(2):
        assert steps(eight, summed.opened(eight.unmasked(summed, EIGHT))) == plain_sum(eight.terms, EIGHT)
    assert summed.total.tolist() == before
