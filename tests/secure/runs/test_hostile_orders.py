"""Orders that lie about their place, or of how many a sum is: no row leaves without masks, or with less noise than was said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.secure.runs.played import KEYS, PATIENT, SURVIVORS, VALUES, asked, ended, missing, stage
from tests.secure.runs.test_lies import ANNA, answer, before, begun
from tideline.archive.checks import LAX
from tideline.archive.reader import decode
from tideline.archive.writer import encode
from tideline.core.asked.secure import SecureSums
from tideline.core.errors import Refused
from tideline.engine.compute.configured import configured
from tideline.engine.model.brief import brief_in
from tideline.engine.site.rules import FREE, Least
from tideline.engine.site.summing import root_key
from tideline.secure.rounds.notebook import OVER
from tideline.secure.rounds.terms import Place


@pytest.mark.parametrize("place", [("score", "score"), ("train", "score"), ("elsewhere", "train")])
def test_values_are_asked_for_by_another_name(place: tuple[str, str]) -> None:
    """By the name of an exchange that is not summed: then the agent would mask nothing."""
    found, run = begun()
    order = before(found, run, VALUES)
    found.agents[ANNA].handle(replace(order, phase=place[0], step=place[1]))
    row = found.journal.order(order.id)
    assert row is not None and row.failure is not None and "which the run's plan has not" in row.failure.what
    head = found.vaults[ANNA].head(run)
    assert head is not None and head.cursor < order.cursor


@pytest.mark.parametrize("lie", [{"sites": 3000, "exponent": 19}, {"sites": 4}, {"exponent": 20}], ids=str)
def test_values_are_asked_for_a_sum_of_other_sites(lie: dict[str, int]) -> None:
    """Of 3000 sites each would add a twentieth of the noise that it owes among five."""
    noise = SecureSums(norm=1.0, noise=1.0)
    found, run = begun(secure_sums={"norm": 1.0, "noise": 1.0})
    order = before(found, run, VALUES)
    takes = configured(found.methods, "fedavg", found.row(run).spec.config, sums=noise).plan[2].step
    assert takes is not None
    record = decode(takes.takes, order.files[0][0], found.parts, LAX)
    other = replace(record, sum_asked=replace(record.sum_asked, **lie))  # type: ignore[attr-defined,type-var]
    words = answer(found, order, encode(other, found.vaults[ANNA].parts(run), LAX).files)
    assert words.startswith("malformed") or "another grid" in words
    head = found.vaults[ANNA].head(run)
    assert head is not None and head.cursor < order.cursor


def test_keys_were_asked_for_in_a_brief_of_their_own() -> None:
    """One of a project whose runs the owner lets sum fewer, say: values are held to what holds where they are asked for."""
    found, run = begun()
    order = before(found, run, VALUES)
    found.agents[ANNA].owner.rules = replace(FREE, least=Least(sites=9))  # type: ignore[attr-defined]
    silent = {**order.brief, "intent": {**order.brief["intent"], "sites": 0}}  # type: ignore[dict-item]
    assert "this site's owner wants 9 at least" in answer(found, replace(order, brief=silent), order.files)


@pytest.mark.parametrize("sums", [None, {"clip": 1.0}, {"norm": 1.0, "noise": 0.01}])
def test_a_run_goes_on_with_the_sums_that_it_began_with(sums: dict[str, float] | None) -> None:
    """Its brief comes with every order. Without sums the same run would send its model; the site remembers, also later."""
    found, run = begun()
    order = before(found, run, VALUES)
    other = stage()
    twin = other.start(asked(secure_sums=sums or False))
    brief = brief_in(before(other, twin, KEYS if sums else VALUES))
    found.rebuild()
    with pytest.raises(Refused, match="has begun with secure sums here"):
        found.agents[ANNA].sums.hold(run, brief)
    assert "asked to go on" in answer(
        found, replace(order, brief=before(other, twin, KEYS if sums else VALUES).brief), order.files
    )


def test_no_root_stays_where_others_have_signed() -> None:
    """A round closes with the first signatures that are enough: who comes too late forgets the root with its next values, or with
    the run's end.
    """
    found, run = begun(waiting=PATIENT)
    found.play(run, missing(found, "carl", SURVIVORS, (1, 2)))
    ended(found, run)
    for name, notes in found.notebooks.items():
        for number in (1, 2):
            assert notes.noted(root_key(Place(run, "train", number))) in (None, OVER), name
