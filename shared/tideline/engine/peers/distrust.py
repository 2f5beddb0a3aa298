"""Whom closed rounds went on without because what sites seal, or the keys of one, could not be trusted: as people are told.

The site's own words say who is to be asked. A round that stalls has them in its cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tideline.archive.errors import SealBroken
from tideline.core.errors import PeerRefused
from tideline.core.run import ClientId
from tideline.engine.model.orders import OrderRow

KINDS = (SealBroken.__name__, PeerRefused.__name__)
Plain = Mapping[str, Any]


def shut_out(orders: Iterable[OrderRow]) -> dict[ClientId, str]:
    """Of a round's newest orders: each site that has failed for such a reason, and the error's kind."""
    return {o.client: o.failure.kind for o in orders if o.failure is not None and o.failure.kind in KINDS}


def notes(result: Plain) -> Iterator[str]:
    """A sentence for each site that closed rounds went on without: the last of them. result: its `phases` and `clients`."""
    folded = {(phase["name"], phase["round"]): phase["clients"] for phase in result.get("phases", ()) if "clients" in phase}
    for client in result["clients"]:
        name = client["name"]
        failures = [each for each in client["failures"] if each["kind"] in KINDS]
        if missed := [each for each in failures if name not in folded.get(place(each), (name,))]:
            yield note(name, missed)


def note(name: str, failures: list[Plain]) -> str:
    """A site's sentence."""
    last, more = failures[-1], len({place(each) for each in failures}) - 1
    before = f", and {more} {'round' if more == 1 else 'rounds'} before it," if more else ""
    return f"Round {last['round']} of {last['phase']}{before} closed without {name}. {last['kind']}: {last['what']}"


def place(failure: Plain) -> tuple[str, int]:
    """The round that a failure is of."""
    return failure["phase"], failure["round"]


def without(sites: Mapping[str, str]) -> str:
    """Such sites of one round, in a few words; none for none."""
    told = ", ".join(f"{name} ({kind})" for name, kind in sorted(sites.items()))
    return f", without {told}" if told else ""
