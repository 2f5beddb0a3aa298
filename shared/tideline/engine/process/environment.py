"""The environment of a process that computes: what it needs, and none of the secrets of the process that starts it.

A worker and a trainer open no database and call nobody, but run code of methods and networks, and read files of others. The
options that they need come as arguments.
"""

from __future__ import annotations

from collections.abc import Mapping

# What a coordinator, an agent or a user's commands have in the environment. A URL of Redis or of a database may hold a password.
OWN = (
    *("TIDELINE_ADMIN_KEY", "TIDELINE_API_KEY", "TIDELINE_DATABASE", "TIDELINE_OIDC_CLIENT_SECRET"),
    *("TIDELINE_REDIS", "TIDELINE_SMTP_PASSWORD", "TIDELINE_TOKEN"),
)
DATABASE = ("DATABASE_URL", "PG")
BUCKET = ("AWS_",)  # of a store of parts


def without_secrets(environment: Mapping[str, str], *more: str) -> dict[str, str]:
    """The variables, but for those that begin with one of OWN or of `more`.

    >>> without_secrets({"PATH": "/bin", "PGPASSWORD": "x", "TIDELINE_ADMIN_KEY_FILE": "/key"}, *DATABASE)
    {'PATH': '/bin'}
    """
    return {name: value for name, value in environment.items() if not name.startswith((*OWN, *more))}
