"""Notes of agents become events of their runs, as many as the limits let, and those of members alone."""

from __future__ import annotations

import doctest
from typing import Any

import pytest

from tests.synthetic import experiment, sites
from tideline.algorithms import METHODS
from tideline.core.errors import ConfigRefused, IdentityRefused
from tideline.core.notes import Note
from tideline.core.run import ClientId, OrderId, RunId
from tideline.engine.coordinator.agent_service import MINUTE, PER_CLIENT, PER_RUN, Notebook
from tideline.engine.coordinator.notices.targets import Wanted, form_of, kinds_of, name_of
from tideline.engine.model import notices
from tideline.engine.model.notices import DAY, HOUR, Form, Kind, Notice, Outgoing, next_try
from tideline.engine.simulation.federation import Federation

ANNA, BERT = ClientId("anna"), ClientId("bert")
STARTED, CUT = Note("order_started"), Note("upload_cut")


@pytest.fixture
def there() -> tuple[Federation, Notebook, RunId]:
    """A run that has asked two sites to join."""
    federation = Federation(METHODS, sites())
    run = federation.start(experiment("fedavg", {"anna": "source", "bert": "source"}))
    return federation, Notebook(federation.agent_service), run


def order_of(federation: Federation, run: RunId, client: ClientId) -> OrderId:
    """What a client is asked."""
    return next(o.id for o in federation.journal.orders(run) if o.client == client)


def notes(federation: Federation, run: RunId) -> list[dict[str, Any]]:
    """What was written."""
    return [dict(e.data) for e in federation.journal.events(run) if e.kind == "note"]


def test_a_note_is_an_event(there: tuple[Federation, Notebook, RunId]) -> None:
    """With its client, its order and its sentence."""
    federation, notebook, run = there
    order = order_of(federation, run, ANNA)
    notebook.take(ANNA, [(order, Note("step_failed", {"seconds": 2.25}, {"error": "ValueError"}))])
    (told,) = notes(federation, run)
    assert (told["client"], told["order"], told["cursor"]) == ("anna", order, -1)
    assert (told["note"], told["level"], told["what"]) == ("step_failed", "error", "failed after 2.2 s: ValueError")
    assert (told["numbers"], told["words"]) == ({"seconds": 2.25}, {"error": "ValueError"})


def test_of_others_orders_nobody_tells(there: tuple[Federation, Notebook, RunId]) -> None:
    """Neither of a neighbour's, nor of one that does not exist; the rest of what is told with the latter is written."""
    federation, notebook, run = there
    with pytest.raises(IdentityRefused):
        notebook.take(BERT, [(order_of(federation, run, ANNA), STARTED)])
    with pytest.raises(IdentityRefused):
        notebook.take(ClientId("carl"), [(order_of(federation, run, ANNA), STARTED)])
    assert notes(federation, run) == []
    notebook.take(ANNA, [(OrderId("none"), STARTED), (order_of(federation, run, ANNA), CUT), (OrderId("none"), STARTED)])
    assert [note["note"] for note in notes(federation, run)] == ["upload_cut"]


def test_a_client_tells_so_much_a_minute(there: tuple[Federation, Notebook, RunId]) -> None:
    """Of warnings up to the limit, of information half of it; what is left out is counted and said when the minute is over."""
    federation, notebook, run = there
    order = order_of(federation, run, ANNA)
    notebook.take(ANNA, [(order, STARTED)] * PER_CLIENT)
    assert len(notes(federation, run)) == PER_CLIENT // 2
    notebook.take(ANNA, [(order, CUT)] * PER_CLIENT)
    assert len(notes(federation, run)) == PER_CLIENT
    notebook.take(BERT, [(order_of(federation, run, BERT), CUT)])
    assert notes(federation, run)[-1]["client"] == "bert" and not notebook.overdue()
    federation.clock.advance(MINUTE)
    assert notebook.overdue()
    notebook.flush()
    last = notes(federation, run)[-1]
    assert (last["client"], last["note"], last["numbers"]) == ("anna", "left_out", {"count": PER_CLIENT})
    assert not notebook.overdue()
    notebook.take(ANNA, [(order, STARTED)])
    assert notes(federation, run)[-1]["note"] == "order_started"


def test_a_run_takes_so_much_a_minute() -> None:
    """However many clients tell."""
    names = [f"site-{i}" for i in range(8)]
    federation = Federation(METHODS, {name: next(iter(sites().values())) for name in names})
    run, notebook = federation.start(experiment("fedavg", dict.fromkeys(names, "source"))), Notebook(federation.agent_service)
    for name in names:
        client = ClientId(name)
        notebook.take(client, [(order_of(federation, run, client), CUT)] * PER_CLIENT)
    assert len(notes(federation, run)) == PER_RUN
    federation.clock.advance(MINUTE)
    notebook.flush()
    last = notes(federation, run)[-1]
    assert last["numbers"] == {"count": 8 * PER_CLIENT - PER_RUN} and "client" not in last


def test_a_run_that_has_ended_takes_none(there: tuple[Federation, Notebook, RunId]) -> None:
    """But for a minute: a note may come a little after the answer that ended the run."""
    federation, notebook, run = there
    order = order_of(federation, run, ANNA)
    federation.run_service.cancel(run)
    notebook.take(ANNA, [(order, CUT)])
    federation.clock.advance(MINUTE)
    notebook.take(ANNA, [(order, CUT)])
    assert len(notes(federation, run)) == 1


# When notices are sent and tried again, and what a target may be.
ONE = Outgoing("msg", "t", Notice(kind=Kind.FAILED, at=0.0, words="", source="1", project="cardio"))


def test_the_examples_of_the_rules() -> None:
    """As the module shows them."""
    assert doctest.testmod(notices).failed == 0


@pytest.mark.parametrize("draw", [0.0, 0.5, 1.0])
def test_tries_grow_apart_up_to_a_day(draw: float) -> None:
    """Each pause is longer than the one before until the longest; the last try is a day after the first."""
    now, pauses, attempts = 0.0, list[float](), 1
    while (due := next_try(Outgoing("m", "t", ONE.notice, attempts=attempts), now, draw)) is not None:
        pauses.append(due - now)
        now, attempts = due, attempts + 1
    assert now == DAY and 10 < attempts < 40 and pauses[:-1] == sorted(pauses[:-1]) and max(pauses) <= 4 * HOUR


def test_a_receiver_may_ask_for_a_pause() -> None:
    """Of an hour at most."""
    once = Outgoing("m", "t", ONE.notice, attempts=1)
    assert next_try(once, 0.0, 0.0, asked=120.0) == 120.0 and next_try(once, 0.0, 0.0, asked=1e9) == HOUR


def test_the_name_of_a_notice_is_the_same_for_all_who_read_it() -> None:
    """Of another target, or of another entry, it is another."""
    other = Notice(kind=Kind.FAILED, at=0.0, words="", source="2", project="cardio")
    assert notices.id_of("t", ONE.notice) == notices.id_of("t", ONE.notice)
    assert len({notices.id_of("t", ONE.notice), notices.id_of("u", ONE.notice), notices.id_of("t", other)}) == 3


def test_a_notice_comes_back_as_it_was_stored() -> None:
    """Through plain data."""
    assert notices.notice_in(ONE.notice.plain()) == ONE.notice  # type: ignore[arg-type]


def test_names_and_forms_that_nobody_gave() -> None:
    """The host, or who gets the mail; JSON, or e-mail."""
    assert (name_of("https://hooks.example/a/b"), name_of("mailto:ann@example.org"), name_of("https://[")) == (
        "hooks.example",
        "ann",
        "",
    )
    assert form_of(Wanted("https://a", ())) is Form.JSON and form_of(Wanted("mailto:a@b", ())) is Form.EMAIL
    for url, form in (("https://a", Form.EMAIL), ("mailto:a@b", Form.SLACK)):
        with pytest.raises(ConfigRefused, match="does not go with this address"):
            form_of(Wanted(url, (), form))


def test_what_a_project_may_hear() -> None:
    """Nothing of the coordinator; each kind once; a test is asked for otherwise."""
    assert kinds_of([Kind.FAILED, Kind.FAILED, Kind.STALLED], "cardio") == (Kind.STALLED, Kind.FAILED)
    assert kinds_of([Kind.DISK], "") == (Kind.DISK,)
    for kinds, scope in (([Kind.DISK], "cardio"), ([], ""), ([Kind.TEST], "")):
        with pytest.raises(ConfigRefused):
            kinds_of(kinds, scope)
