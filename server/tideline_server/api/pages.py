"""Lists in pages: so many rows, those after the last one seen, and a link to the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar
from urllib.parse import quote, urlencode

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from tideline_server.api.services import NAME, Responses

LONGEST = 1000  # rows on a page
T = TypeVar("T")
Limit = Annotated[int | None, Query(ge=1, le=LONGEST, description="the most rows to list; all without it")]
After = Annotated[str | None, Query(pattern=NAME, description="list the rows that follow this one: the last of the page before")]
LINK = {"Link": {"description": 'where more follows: `<address>; rel="next"`', "schema": {"type": "string"}}}
PAGED: Responses = {200: {"headers": LINK}}


def page(rows: Sequence[T], name_of: Callable[[T], str], after: str | None, limit: int | None) -> tuple[Sequence[T], bool]:
    """The rows of a list in the order of their names that follow `after`, at most so many, and whether more follow."""
    left = [row for row in rows if after is None or name_of(row) > after]
    return left[:limit], limit is not None and len(left) > limit


def link_next(request: Request, response: Response, after: Any) -> None:
    """Say where the next page is: the same address, after this row."""
    asked = [(k, v) for k, v in request.query_params.multi_items() if k != "after"]
    address = f"{quote(request.url.path)}?{urlencode([*asked, ('after', str(after))])}"
    response.headers["Link"] = f'<{address}>; rel="next"'
