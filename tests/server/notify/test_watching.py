"""What a coordinator tells of itself: its disks and the certificates that it knows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509

from tideline.client.certificates import issue_client, issue_coordinator
from tideline.engine.model.notices import DAY, HOUR, Kind
from tideline.engine.simulation.adapters import ManualClock
from tideline_server.notify.building import ends_of
from tideline_server.notify.watching import LOW, Watch
from tideline_server.rpc.certificates import LIVING_SECONDS, Certificates

NOW = 100 * DAY


def test_a_disk_that_is_nearly_full() -> None:
    """Each of a coordinator's own; one that cannot be looked at is readiness' business."""
    free = {Path("/full"): LOW - 1, Path("/good"): LOW, Path("/gone"): None}
    watch = Watch("here", tuple(free), free=lambda folder: free[folder])
    [found] = watch(NOW)
    assert (found.kind, found.subject, found.words) == (Kind.DISK, "here:/full", "The disk of /full at here has 1999 MB left")
    sources = [next(iter(watch(NOW + hours * HOUR))).source for hours in (0, 5, 6)]
    assert sources[0] == sources[1] != sources[2]


def test_certificates_that_end_soon() -> None:
    """The coordinator's own and those of agents; far ends are no news."""
    ends = ends_of(lambda: NOW + 3 * DAY, lambda: {"ann": NOW + 20 * DAY, "bob": NOW - 5 * DAY})
    found = list(Watch("here", (), ends)(NOW))
    assert [each.words for each in found] == [
        "The certificate of the coordinator ends in 3 days",
        "The certificate of the agent bob ended 5 days ago",
    ]
    assert {each.kind for each in found} == {Kind.CERTIFICATE} and [each.subject for each in found][1] == "the agent bob"
    assert list(Watch("here", (), ends_of(None, dict))(NOW)) == []


def test_agents_certificates_are_known_while_they_live(tmp_path: Path) -> None:
    """As each showed it last."""
    issue_coordinator(tmp_path, ["localhost"])
    chain = Path(issue_client(tmp_path, "ann")["certificate"]).read_bytes()
    clock = ManualClock(NOW)
    known = Certificates(clock)
    known.saw("ann", chain)
    end = x509.load_pem_x509_certificate(chain).not_valid_after_utc
    assert known.ends() == {"ann": end.timestamp()} and end > datetime.now(UTC) + timedelta(days=30)
    clock.advance(LIVING_SECONDS + 1)
    assert known.ends() == {}
