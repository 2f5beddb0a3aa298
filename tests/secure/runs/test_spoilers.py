"""A site that would spoil a run: what it sends is refused as it comes, and the run goes on without it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.laws.stage import Stage
from tests.secure.runs.played import KEYS, UNMASK, VALUES, asked, client_of, ended, stage
from tideline.archive import plain
from tideline.core.run import ClientId, RunId
from tideline.engine.model.brief import Brief
from tideline.engine.model.orders import Files, Order, OrderStatus
from tideline.engine.site.summing import Answer, SiteSums
from tideline.secure.rounds.terms import Identity

BERT = ClientId("bert")


class Spoiler(SiteSums):
    """A site's half, whose answers are spoilt in one exchange."""

    spoils = ""
    key = bytes(32)

    def keys(self, asked: bytes, state: Any, run: Any, who: Identity) -> Any:
        made, then = super().keys(asked, state, run, who)
        if self.spoils != KEYS:
            return made, then
        bare = [replace(each, mask_key=self.key) for each in made.adverts]
        return replace(made, adverts=tuple(replace(each, signature=who.sign(each.words)) for each in bare)), then

    def unmask(self, asked: bytes, state: Any, run: Any, who: Identity) -> Any:
        made, then = super().unmask(asked, state, run, who)
        few = replace(made, seeds=(replace(made.seeds[0], share=bytes(len(made.seeds[0].share))), *made.seeds[1:]))
        return (few if self.spoils == UNMASK else made), then

    def hide(self, order: Order, brief: Brief, state: Files, message: Files, parts: Any, least: int = 1) -> Answer:
        made = super().hide(order, brief, state, message, parts, least)
        values = plain.tensor_at(parts, made.reply[0][0], "values")
        other = plain.write_record(parts, {"values": values, "order": "f" * 64})
        return replace(made, reply=other) if self.spoils == VALUES else made


def spoilt(phase: str, key: bytes = bytes(32)) -> tuple[Stage, RunId]:
    found = stage()
    bert = found.agents[BERT]
    bert.sums = Spoiler(BERT, bert.sums.peer_keys, bert.sums.notebook)
    bert.sums.spoils, bert.sums.key = phase, key
    return found, found.start(asked(waiting={"min_replies": 4, "deadline": 10.0}))


@pytest.mark.parametrize(
    ("phase", "key", "words"),
    [
        (KEYS, bytes(32), "nobody can agree on anything with"),
        (KEYS, b"short", "nobody can agree on anything with"),
        (VALUES, b"", "bert answers another order than it was given"),
        (UNMASK, b"", "not those that it was sent, or not all"),
    ],
    ids=["a key of low order", "no key", "another order", "wrong shares"],
)
def test_it_is_named_and_left_out(phase: str, key: bytes, words: str) -> None:
    """Of five sites four suffice."""
    found, run = spoilt(phase, key)
    found.play(run)
    ended(found, run)
    failed = [
        o for o in found.journal.orders(run) if o.status is OrderStatus.FAILED and found.row(run).fact(o.cursor).phase == phase
    ]
    assert {o.client for o in failed} == {BERT}
    assert failed[0].failure is not None and words in failed[0].failure.what


@pytest.mark.parametrize("phase", [VALUES, UNMASK])
def test_a_run_that_has_too_few_beside_it_stalls_and_goes_on(phase: str) -> None:
    """It ended for good, or stalled for ever, where one more was missing for a while."""
    found, run = spoilt(phase)
    row = found.play(run, lambda orders: [o for o in orders if o.phase != phase or client_of(found, o) != "carl"])
    assert row.status == "stalled" and "bert" in row.cause
    found.run_service.resume(run)
    found.play(run)
    ended(found, run)
