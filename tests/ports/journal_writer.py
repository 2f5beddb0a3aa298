"""A process that writes a journal until it is killed: `python journal_writer.py WHERE` prints each cursor once committed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from journal_names import ANN, RUN
from journal_values import advance, answer, began, files, push

from tests.engine.present import present
from tideline.core.run import OrderId
from tideline_server.store import SqlJournal


def main(where: Path | str) -> None:
    """Begin the run or go on with it, round after round."""
    os.umask(0o077)  # as a coordinator does: a file that others may read is closed with a line on stdout, where cursors belong
    journal = SqlJournal(where)
    if journal.run(RUN) is None:
        began(journal)
    run = present(journal.run(RUN))
    for cursor in range(run.cursor, 10**6):
        push(journal, files(("r", cursor)))
        answer(journal, OrderId(f"{RUN}/{cursor}/{ANN}/1"), files(("r", cursor)))
        journal.advance(advance(cursor, files(("m", cursor), "frozen"), files(("s", cursor)), retain_from=cursor - 1))
        journal.collect(0.0)
        print(cursor + 1, flush=True)


if __name__ == "__main__":
    main(sys.argv[1] if "://" in sys.argv[1] else Path(sys.argv[1]))
