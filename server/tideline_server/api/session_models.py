"""What the HTTP API answers of sessions of browsers (models)."""

from __future__ import annotations

from pydantic import BaseModel, Field

from tideline_server.api.models import GrantLine


class SessionShown(BaseModel):
    """A browser's own session."""

    kind: str = Field(description="key: it began with a key; user: with a provider; open: this coordinator asks for no key")
    name: str = Field(description="as it stands in the audit log: the key's, or the user's")
    role: str = Field(description="viewer, operator or admin; of a user of several projects, the highest")
    project: str = Field(description="the project that it sees, or all; `*`: several, and the call names none of them")
    issuer: str = Field(description="the provider; of a session that began with a key `api-key`")
    subject: str = Field(description="by what the provider knows the user")
    expires: float | None = Field(description="null: never, as no key is asked for")
    csrf: str = Field(description="the value of the header Tideline-CSRF, which each change needs")
    grants: list[GrantLine] = Field(description="of a user, the roles in projects; of a key nothing")


class SessionLine(BaseModel):
    """A browser's session in one line, without its secret."""

    id: str
    name: str = Field(description="as it stands in the audit log")
    issuer: str = Field(description="the provider; of a session that began with a key `api-key`")
    subject: str = Field(description="by what the provider knows the user; of a key nothing")
    created: float
    expires: float
    last_used: float | None = Field(description="to the minute; null: never")
    ended: float | None = Field(description="null: it is good until it expires")
