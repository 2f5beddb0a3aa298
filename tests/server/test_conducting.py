"""What the coordinator does beside its runs."""

from __future__ import annotations

import asyncio

from tests.engine.toys import stage, start, until
from tideline.engine.leases import Leases
from tideline.engine.rows import Status
from tideline_server.bell import LocalBell
from tideline_server.conducting import Conducting

LONG = 20.0  # nothing here takes so long; what does has failed


def test_a_look_leaves_nothing_lying() -> None:
    """What a run that a person cancelled has left is taken at the next look, though no round is closed any more."""
    on = stage()
    run = start(on)
    until(on, run, 1)
    on.office.cancel(run)
    last = [digest for digest, _ in on.journal.rounds(run)[-1].state]
    assert on.row(run).status is Status.CANCELLED and len(list(on.parts.digests())) > len(last)

    async def play() -> None:
        conducting = Conducting(on.conductor, Leases(on.journal, on.clock, "here", LONG), LocalBell(asyncio.get_running_loop()))
        await conducting.look()
        async with asyncio.timeout(LONG):
            while list(on.parts.digests()) != last:
                await asyncio.sleep(0)
        await conducting.stop()

    asyncio.run(play())
