"""What the door answers, described for people and for generated clients. Times are seconds since the epoch."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Problem(BaseModel):
    """Why a request was not done."""

    kind: str = Field(description="stable name of the error, for programs", examples=["ConfigRefused"])
    what: str = Field(description="what happened, for people", examples=["config.rounds is -1; it should be at least 0"])
    todo: str = Field(description="what to do about it", examples=["Correct the value"])
    path: str | None = Field(description="dotted place in the body of what is wrong", examples=["config.rounds"])
    context: dict[str, Any] = Field(description="more about it, as plain data")


class ErrorBody(BaseModel):
    """The one shape of every error."""

    error: Problem


class Started(BaseModel):
    """A run that was started."""

    run: str = Field(description="the run's id", examples=["5f0c1a9be2d4"])
    reference: str | None = Field(description="id of the run to compare with, if the experiment asked for one")
    notes: list[str] = Field(description="what the method will do otherwise than it was asked, such as a number that it rounds")


class RunLine(BaseModel):
    """A run in one line."""

    id: str
    name: str = Field(description="a name for people")
    method: str
    status: str = Field(description="waiting, running, stalled, completed, failed or cancelled")
    cause: str = Field(description="why it stalled or ended")
    cursor: int = Field(description="exchanges closed so far; -1 while the sites are gathered")
    of: int = Field(description="exchanges in the plan")
    created: float
    ended: float | None
    reference_of: str | None = Field(description="the run that this one is compared with")


class RunResult(BaseModel):
    """A run's result, or as much as there is of it. The same keys as `tideline simulate --json` writes."""

    model_config = ConfigDict(extra="allow")

    run: str
    name: str
    method: str
    config: dict[str, Any] = Field(description="the method's settings, defaults included")
    world: dict[str, Any] = Field(description="what all members agree on")
    seed: int
    rounds: int | None
    notes: list[str] = Field(description="what the method does otherwise than it was asked, in sentences")
    status: str
    cause: str
    waits_for: str = Field(description="what an open run waits for, in words")
    seconds: float | None
    state_digest: str | None = Field(description="SHA-256 of the final state's root file; null until completed")
    fingerprint: str = Field(description="what equal bytes depend on: torch, processor, threads")
    reference: str | None
    reference_status: str | None
    clients: list[dict[str, Any]] = Field(description="per site: role, samples, accuracy, source_only, bytes, failures")
    phases: list[dict[str, Any]] = Field(description="the closed rounds: name, round, seconds, replies, clients, asked, bytes")
    curve: list[dict[str, Any]] = Field(description="accuracy over the rounds, a point per site and scoring")
    history: list[dict[str, Any]] | None = Field(description="every metric told, an entry per reply; null unless asked for")
    contract: list[dict[str, Any]] = Field(description="everything that leaves a site, clause by clause")
    plan_length: int
    cursor: int


class RunFiles(BaseModel):
    """The files of a completed run's final state."""

    root: str = Field(description="SHA-256 of the root, which names the others; equal to the result's state_digest")
    files: list[tuple[str, int]] = Field(description="(digest, bytes), the root first; see /parts/{digest}")


class Method(BaseModel):
    """A method in one line."""

    name: str
    summary: str
    paper: str


class MethodDetail(Method):
    """A method's settings and presets."""

    settings: list[dict[str, Any]] = Field(description="name, type, default, bounds, choices and a sentence")
    presets: dict[str, dict[str, Any]] = Field(description="named settings to begin from")
    cast: list[str] = Field(
        description="roles of a demonstration: the last site takes the last, the others cycle through the rest"
    )
    digest: str = Field(description="SHA-256 of the default contract")


class MethodContract(BaseModel):
    """What a method makes sites send, derived from the types of its replies."""

    name: str
    digest: str = Field(description="equal meaning, equal digest")
    contract: list[dict[str, Any]] = Field(description="clauses: phase, step, field, dims, exposure, audience")
    sentences: list[str] = Field(description="the clauses in words, for people who own data")
    claims: list[str] = Field(description="what is and is not claimed of them, in sentences")


class ClientLine(BaseModel):
    """An enrolled agent."""

    name: str
    roles: list[str] = Field(description="the roles that its owner allows")
    labels: dict[str, str] = Field(description="what it was invited with; experiments select by them")
    version: str
    enrolled: float
    seen: float = Field(description="when it was last heard")


class Invited(BaseModel):
    """A one-use token. It is shown here and never again."""

    token: str
    name: str = Field(description="the only name it admits; empty: the agent chooses")
    labels: dict[str, str]
    expires: float


class Health(BaseModel):
    """The coordinator answers. Other keys are facts about it."""

    model_config = ConfigDict(extra="allow")

    status: str = Field(examples=["ok"])
    version: str


class PartsSwept(BaseModel):
    """What lies in the store of parts after a sweep, and what the sweep found."""

    kept: int = Field(description="parts that are kept")
    bytes: int = Field(description="their bytes")
    found: int = Field(description="parts that no record knew of; they stay for an hour after they were written")
    dropped: int = Field(description="parts that were dropped")
    freed: int = Field(description="their bytes")
