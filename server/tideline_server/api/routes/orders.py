"""Orders of a run: who was asked for what, and what became of it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from tideline.core.errors import ConfigRefused
from tideline.core.run import RunId
from tideline.engine.model.runs import JOIN, RunRow
from tideline.engine.model.totals import OrderTimes
from tideline_server.api.requests.access import Asking
from tideline_server.api.services import Given, Name

router = APIRouter(prefix="/runs", tags=["runs"])
MOST_PLACES = 50
FURTHEST = 2**31 - 1
Cursor = Annotated[int | None, Query(ge=JOIN, le=FURTHEST, description="the place in the plan; -1: the join")]
Last = Annotated[int | None, Query(ge=1, le=MOST_PLACES, description="those of the last places, so many, and not of one")]


class OrderFailure(BaseModel):
    """Why there is no reply."""

    kind: str = Field(description="stable name of the error")
    what: str = Field(description="the same in words")


class OrderStages(BaseModel):
    """When a site began each stage of its work on an order, on the coordinator's clock. Before it the order was queued."""

    fetching: float = Field(description="when it began to fetch what the step reads")
    computing: float = Field(description="when its step began")
    sending: float = Field(description="when its step was done")


class OrderShown(BaseModel):
    """An order: what became of it, and when."""

    client: str = Field(description="the site that was asked")
    cursor: int = Field(description="its place in the plan; -1: the join")
    phase: str
    round: int
    attempt: int = Field(description="counted from 1: a site is asked again where its order was lost or a stalled run is resumed")
    status: str = Field(description="open, answered, failed, expired or cancelled")
    held: str = Field(description="why the site lets it wait, such as `approval`; empty: it does not")
    created: float = Field(description="when the site was asked")
    beat: float = Field(description="when it last told of its progress; 0: never")
    answered: float | None = Field(description="when its reply was there; null: there is none")
    progress: float = Field(description="in 0..1")
    bytes_down: int = Field(description="bytes of what the site fetched for it")
    bytes_up: int = Field(description="bytes of its reply")
    failure: OrderFailure | None
    stages: OrderStages | None = Field(description="when each began; null: the site has not told, or not replied yet")


@router.get("/{run}/orders", summary="List a run's orders")
def list_orders(services: Given, asking: Asking, run: Name, cursor: Cursor = None, last: Last = None) -> list[OrderShown]:
    """Those of one place in the plan: of the newest that asked somebody, unless `cursor` says which; or of the `last` places.

    By place, site and attempt, without what was sent and what was reported.
    """
    row = services.run_service.find(RunId(run), asking.scope)
    if cursor is not None and last is not None:
        raise ConfigRefused("cursor is one place, and last several", "Give one of them", path="last")
    found = services.journal.recent_orders(row.id, last or 1, cursor)
    return [shown(order, row) for order in found if cursor in (None, order.cursor)]


def shown(order: OrderTimes, row: RunRow) -> OrderShown:
    fact = row.fact(order.cursor)
    failure = None if order.failure is None else OrderFailure(kind=order.failure.kind, what=order.failure.what)
    given = vars(order) | {"status": order.status.value, "failure": failure, "stages": stages_of(order)}
    return OrderShown(**given, phase=fact.phase, round=fact.round)


def stages_of(order: OrderTimes) -> OrderStages | None:
    if order.stages is None:
        return None
    fetching, computing, sending = order.stages
    return OrderStages(fetching=fetching, computing=computing, sending=sending)
