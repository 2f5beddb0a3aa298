"""The methods that this coordinator knows."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from tideline.core.settings import Plain, plain
from tideline_server.api.models import Method, MethodContract, MethodDetail
from tideline_server.api.services import Given, Name

router = APIRouter(prefix="/algorithms", tags=["algorithms"])
Preset = Annotated[str | None, Query(max_length=80, description="a preset's name; none: the defaults")]


@router.get("", summary="List the methods", response_model=list[Method])
def list_algorithms(services: Given) -> list[Plain]:
    """Every method with its summary and source."""
    return [plain(each) for each in services.compute.methods()]


@router.get("/{name}", summary="Show a method's settings and presets", response_model=MethodDetail)
def show_algorithm(services: Given, name: Name) -> Plain:
    """Settings with their bounds and documentation."""
    return plain(services.compute.describe(name))


@router.get("/{name}/contract", summary="Show what a method makes sites send", response_model=MethodContract)
def show_contract(services: Given, name: Name, preset: Preset = None) -> Plain:
    """The privacy contract of the defaults or of a preset; every clause also in words."""
    return plain(services.compute.describe(name, preset))
