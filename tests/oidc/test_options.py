"""The options of sign-in: what is said of wrong ones, before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tideline.core.errors import ConfigRefused
from tideline.engine.model.access.grants import Grant, granted, highest, read_rules
from tideline.engine.model.access.projects import EVERY
from tideline.engine.model.accounts import KeyRole
from tideline.oidc.fetching import Fetcher
from tideline_server.oidc.options import OidcOptions, options_of
from tideline_server.settings import CoordinatorSettings

GOOD = {"oidc_issuer": "https://idp.example/realms/x", "oidc_client_id": "tideline", "oidc_grant": ("a=admin",)}
WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({"oidc_client_id": ""}, "needs --oidc-client-id"),
    ({"oidc_grant": ()}, "nobody who signs in may do anything"),
    ({"oidc_issuer": "http://idp.example"}, "without TLS"),
    ({"oidc_issuer": "idp.example"}, "--oidc-issuer is 'idp.example'"),
    ({"oidc_issuer": "https://u:p@idp.example"}, "--oidc-issuer"),
    ({"oidc_issuer": "https://idp.example?x=1"}, "--oidc-issuer"),
    ({"oidc_issuer": "https://"}, "--oidc-issuer"),
    ({"oidc_grant": ("cardio-ops",)}, "VALUE=ROLE:PROJECT"),
    ({"oidc_grant": ("=admin",)}, "VALUE=ROLE:PROJECT"),
    ({"oidc_grant": ("a=owner",)}, "grants the role 'owner'"),
    ({"oidc_grant": ("a=admin:cardio",)}, "an admin is one of every project"),
    ({"oidc_grant": ("a=viewer:Cardio",)}, "cannot name a project"),
    ({"oidc_url": "https://tide.example/path"}, "--oidc-url"),
    ({"oidc_url": "tide.example"}, "--oidc-url"),
    ({"oidc_ca": Path("/nowhere.pem")}, ""),
)


def read(**changes: Any) -> OidcOptions | None:
    """The options of good settings with some changes."""
    return options_of(CoordinatorSettings(**(GOOD | changes)))


def test_without_a_provider_there_is_none() -> None:
    """And options that would do nothing are refused."""
    assert options_of(CoordinatorSettings()) is None
    for name in ("oidc_client_id", "oidc_audience", "oidc_client_secret", "oidc_cli_client_id"):
        with pytest.raises(ConfigRefused, match="no provider"):
            options_of(CoordinatorSettings(**{name: "x"}))  # type: ignore[arg-type]


def test_audiences() -> None:
    """The clients' ids, or the one that is given."""
    found = read(oidc_cli_client_id="cli")
    assert found is not None and found.audiences == ("tideline", "cli") and found.by_id_token
    found = read(oidc_audience="api")
    assert found is not None and found.audiences == ("api",) and not found.by_id_token


def test_a_secret_is_shown_by_nothing(tmp_path: Path) -> None:
    """It comes from a file, in one line, or from the environment."""
    (tmp_path / "secret").write_text("the secret\n")
    found = read(oidc_client_secret_file=tmp_path / "secret")
    assert found is not None and found.secret == "the secret" and "the secret" not in repr(found)
    assert "xyz" not in repr(CoordinatorSettings(**GOOD, oidc_client_secret="xyz"))  # type: ignore[arg-type]
    with pytest.raises(ConfigRefused, match="cannot be read"):
        read(oidc_client_secret_file=tmp_path / "none")


def test_wrong_options(subtests: pytest.Subtests) -> None:
    """A wrong option is refused with its name and what to write."""
    for changes, words in WRONG:
        with subtests.test(str(changes)):
            with pytest.raises(ConfigRefused) as refused:
                options = read(**changes)
                assert options is not None
                Fetcher(options.ca)
            assert words in f"{refused.value.what} {refused.value.todo}" and refused.value.todo


def test_providers_without_tls() -> None:
    """On this machine, and where that is said."""
    for more in ({"oidc_issuer": "http://127.0.0.1:8080/x"}, {"oidc_issuer": "http://idp:8080", "oidc_insecure": True}):
        assert read(**more) is not None


def test_rules() -> None:
    """Values may have equals signs and colons; one may grant several things, each once."""
    rules = read_rules(
        ["CN=ops,OU=h=operator:cardio", "CN=ops,OU=h=viewer:all", "x:y=viewer", "b=viewer:all", "c=admin:all"], "o"
    )
    assert granted(rules, ["CN=ops,OU=h", "b"]) == (Grant(KeyRole.VIEWER), Grant(KeyRole.OPERATOR, "cardio"))
    assert granted(rules, ["x:y"]) == (Grant(KeyRole.VIEWER, "default"),)
    assert granted(rules, ["c"]) == (Grant(KeyRole.ADMIN),) and granted(rules, ["CN=ops", ""]) == ()
    both = granted(rules, ["CN=ops,OU=h"])
    assert highest(both, EVERY, "cardio") is KeyRole.OPERATOR and highest(both, EVERY) is KeyRole.VIEWER
    assert highest(both, "retina") is None
