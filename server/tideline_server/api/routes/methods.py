"""Methods, and plans of links between devices."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Query
from starlette.responses import JSONResponse, Response

from tideline.core.settings import Plain, plain
from tideline.planning.request import LinksRequest
from tideline_server.api.models import LinkPlan, Method, MethodContract, MethodDetail
from tideline_server.api.openapi import LINK_PLANS, body_of
from tideline_server.api.services import Given, Name
from tideline_server.planner import check_seconds

router = APIRouter(prefix="/algorithms", tags=["algorithms"])
Preset = Annotated[str | None, Query(max_length=80, description="a preset's name; none: the defaults")]

Summed = Annotated[bool, Query(description="the contract of a run with secure sums, and what is still seen of single sites")]


@router.get("", summary="List the methods", response_model=list[Method])
def list_algorithms(services: Given) -> list[Plain]:
    """Every method with its summary and source."""
    return [plain(each) for each in services.compute.methods()]


@router.get("/{name}", summary="Show a method's settings and presets", response_model=MethodDetail)
def show_algorithm(services: Given, name: Name) -> Plain:
    """Settings with their bounds and documentation."""
    return plain(services.compute.describe(name))


@router.get("/{name}/contract", summary="Show what a method makes sites send", response_model=MethodContract)
def show_contract(services: Given, name: Name, preset: Preset = None, secure_sums: Summed = False) -> Plain:
    """The privacy contract of the defaults or of a preset; every clause also in words."""
    return plain(services.compute.describe(name, preset, secure_sums))


links = APIRouter(prefix="/links", tags=["links"])


@links.post("/plan", summary="Plan links", response_model=LinkPlan, openapi_extra=body_of(LinksRequest, LINK_PLANS))
def plan_links(services: Given, body: Annotated[dict[str, Any], Body()]) -> Response:
    """Which devices should be sources, which targets, and which source sends its model to which target. It starts no run.

    Nothing changes, so you may repeat the call; where a search is cut short by `seconds`, its answer may differ.
    Mistakes come with their place and the names of the devices.
    """
    # All else is checked where it is planned: of 200 devices it takes a second, in which agents would be heard late.
    check_seconds(body)
    return JSONResponse(services.plan(body))
