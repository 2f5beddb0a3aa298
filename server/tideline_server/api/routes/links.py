"""Plans of links between devices, without a run."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body
from starlette.responses import JSONResponse, Response

from tideline.planning.request import LinksRequest
from tideline_server.api.examples import LINKS
from tideline_server.api.models import LinkPlan
from tideline_server.api.schema import body_of
from tideline_server.api.services import Given
from tideline_server.planner import check_seconds

router = APIRouter(prefix="/links", tags=["links"])


@router.post("/plan", summary="Plan links", response_model=LinkPlan, openapi_extra=body_of(LinksRequest, LINKS))
def plan_links(services: Given, body: Annotated[dict[str, Any], Body()]) -> Response:
    """Who should be a source, who a target, and which source sends its model to which target. No run, no site and no entry.

    Nothing changes, so the same call may be sent again at will; where a search is cut short by `seconds`, its answer may differ.
    Mistakes come with their place and the names of the devices.
    """
    # All else is checked where it is planned: of 200 devices it takes a second, in which agents would be heard late.
    check_seconds(body)
    return JSONResponse(services.plan(body))
