"""`tideline clients`: what an operator sees and decides."""

from __future__ import annotations

import json
import re

from tests.cli.world import Coordinator, output_of, tide
from tideline.engine.coordinator.enrolment import Applicant
from tideline.engine.model.accounts import Keys

KEYS = Keys("00" * 32, "99" * 32)
FINGERPRINT = "af2d 92c4 c14b cc03 ca35 0e49 6c12 336c"


def held(there: Coordinator) -> None:
    """Carl is invited with --hold, by the command, and enrols."""
    told = tide("invite", "--name", "carl", "--labels", "site=c", "--hold", "--home", there.home)
    assert told.exit_code == 0 and "tideline clients approve carl" in told.stdout
    token = next(word for word in told.stdout.split() if word.startswith("tide1_"))
    there.federation.run_service.enrolment.admit(token, Applicant("carl", ("peer",), "9.8", keys=KEYS))


def test_a_list_of_clients(there: Coordinator) -> None:
    held(there)
    shown = tide("clients", "list", "--home", there.home).stdout
    carl = next(line for line in shown.splitlines() if "carl" in line)
    assert all(word in carl for word in ("pending", FINGERPRINT, "peer", "site=c", "9.8", "1970-01-01"))
    rows = json.loads(tide("clients", "list", "--json", "--home", there.home).stdout)
    assert [row["name"] for row in rows] == ["anna", "bert", "carl"]


def test_a_client_is_approved(there: Coordinator) -> None:
    """The answer shows the fingerprint once more; done again, the same."""
    held(there)
    for _ in range(2):
        told = tide("clients", "approve", "carl", "--home", there.home)
        assert told.exit_code == 0 and told.stdout == f"carl is approved, fingerprint {FINGERPRINT}\n"
    assert output_of(tide("clients", "rotate", "carl", "--home", there.home)).startswith("carl is asked for new keys")
    assert "approved, new keys awaited" in tide("clients", "list", "--home", there.home).stdout


def test_a_client_is_revoked(there: Coordinator) -> None:
    """With its reason, which the list tells; it is neither approved nor asked for keys then, and may be invited again."""
    for _ in range(2):
        told = tide("clients", "revoke", "anna", "--reason", "has left", "--home", there.home)
        assert told.exit_code == 0 and re.fullmatch("anna is revoked, fingerprint [0-9a-f ]{39}\n", told.stdout)
    assert "anna: revoked on 1970-01-01 00:00 UTC: has left" in tide("clients", "list", "--home", there.home).stdout
    for what in ("approve", "rotate"):
        told = tide("clients", what, "anna", "--home", there.home)
        assert told.exit_code == 2 and "was revoked on" in told.stderr and "tideline invite --name anna" in told.stderr
    assert tide("invite", "--name", "anna", "--home", there.home).exit_code == 0


def test_who_is_not_there(there: Coordinator) -> None:
    """A name that is near is suggested; one that is none is refused."""
    for what in ("approve", "revoke", "rotate"):
        told = tide("clients", what, "annna", "--home", there.home)
        assert told.exit_code == 2 and "There is no client 'annna'" in told.stderr and "did you mean anna?" in told.stderr
        assert tide("clients", what, "no/name", "--home", there.home).exit_code in (2, 4)
