"""docs/admission.md has a row for each lie that is told to real processes, with what it is answered, and no others."""

from __future__ import annotations

import pytest

from tests.acceptance.hostile.calls import CALLS
from tests.acceptance.hostile.files import FILES
from tests.acceptance.hostile.orders import ORDERS
from tests.acceptance.hostile.requests import REQUESTS
from tests.acceptance.hostile.siege import ATTACKS
from tests.docs.manual import DOCS, section, tables

PAGE = DOCS / "admission.md"
TABLES = {
    "Hostile calls from an agent": {name: (f"`{lie.kind}`", lie.words or "-") for name, lie in CALLS.items()},
    "Hostile files": {name: (f"`{lie.kind}`", lie.words or "-") for name, lie in FILES.items()},
    "Hostile HTTP requests": {
        name: (str(lie.status), f"`{lie.kind}`" if lie.kind else "-", lie.words or "-") for name, lie in REQUESTS.items()
    },
    "Hostile orders from a coordinator": {name: (f"`{lie.kind}`", lie.words or "-") for name, lie in ORDERS.items()},
}


@pytest.mark.parametrize("heading", TABLES)
def test_each_lie_has_its_row(heading: str) -> None:
    """Its name, its kind of error and words of it; of a request the status too."""
    (rows,) = tables(section(PAGE, heading))
    assert {row[0]: tuple(row[1:]) for row in rows} == TABLES[heading] and len(rows) == len(TABLES[heading])


def test_each_crowd_has_its_row() -> None:
    """Its name, and what stops it."""
    (rows,) = tables(section(PAGE, "Crowds"))
    assert [row[0] for row in rows] == list(ATTACKS) and all(row[1] for row in rows)


def test_a_lie_has_one_name() -> None:
    """No two tables call one thing alike."""
    names = [name for told in TABLES.values() for name in told]
    assert len(names) == len(set(names)) > 40
