"""Responses of the HTTP API that tell of notices. Times are seconds since the epoch."""

from __future__ import annotations

from pydantic import BaseModel, Field


class TargetLine(BaseModel):
    """A target of notices in one line, without its secret."""

    name: str
    project: str = Field(description="whose notices it gets; empty: those of all projects and of the coordinator")
    to: str = Field(description="its address without what may be a secret", examples=["https://hooks.example/..."])
    form: str = Field(description="json, slack, teams or email")
    on: list[str] = Field(description="what it gets: stalled, failed, completed, approval, certificate, disk")
    created: float
    created_by: str = Field(description="the name of the key that added it")
    last_sent: float | None = Field(description="when it took a notice last; null: never")
    reason: str = Field(description="why the last try did not succeed; empty: it did, or there was none")
    ended: float | None = Field(description="since when nothing is sent, because it answered that it is gone (410)")
    left_out: int = Field(description="notices that did not fit among the thousand that may wait for it")


class TargetAdded(TargetLine):
    """A new target. Its secret is shown here and never again."""

    secret: str = Field(description="by which its notices are signed, whsec_...; empty: it gets e-mail, which is not signed")


class TargetTested(BaseModel):
    """How a test went."""

    taken: bool = Field(description="whether it was taken")
    words: str = Field(description="its status, or why it was not taken", examples=["HTTP 204"])
