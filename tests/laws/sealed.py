"""Law 6 for values that sites seal for each other: nothing of them crosses a link in words that could be read."""

from __future__ import annotations

from collections.abc import Iterator

from tests.laws.case import Case
from tests.laws.laws import WINDOW
from tests.laws.stage import Stage
from tideline.archive.layout import parse
from tideline.core.run import RunId
from tideline.engine.ports.site import Head


def stays_sealed(case: Case) -> int:
    """No piece of a sealed value is among the bytes that pass, but what its holder was sent or sent before: their number."""
    stage, run = case.played()
    wire, found = stage.wire.all(), 0
    for name, vault in stage.vaults.items():
        for head in vault.past:
            common = b"|".join(b for who, at, b in stage.wire.down if who == name and at <= head.cursor)
            common += b"|".join(b for who, at, b in stage.wire.up if who == name and at < head.cursor)
            for piece in pieces(stage, name, run, head):
                found += 1
                assert piece not in wire or piece in common, f"{name}'s value of exchange {head.cursor} passed unsealed"
    return found


def pieces(stage: Stage, name: str, run: RunId, head: Head) -> Iterator[bytes]:
    """Pieces of what a site gave its peers that are varied enough to be recognised."""
    parts = stage.vaults[name].parts(run)  # type: ignore[index]
    for envelope in head.sealed:
        view = parts.view(envelope.handle.digest)  # type: ignore[arg-type]
        data = bytes(view[parse(view).data_start :])
        for at in range(0, len(data) - WINDOW + 1, WINDOW):
            piece = data[at : at + WINDOW]
            if len(set(piece)) > 8:
                yield piece
