"""A coordinator's certificate, renewed in its files: what is taken up, what is not, and who hears of it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import uvicorn
from cryptography import x509
from structlog.testing import capture_logs

from tideline.client import certificates
from tideline.core.errors import ConfigRefused
from tideline.core.tokens import MOST_AUTHORITIES
from tideline.engine.simulation.adapters import ManualClock
from tideline_server.api.handshakes import Handshakes
from tideline_server.api.server import QuietServer
from tideline_server.rpc.server import credentials_of
from tideline_server.tls import Certificate, TlsFiles, authority_of, context_of, read_tls
from tideline_server.tls.renewing import ANNOUNCED_SECONDS

DAY = 86400.0


@dataclass
class Files:
    """The files of a coordinator, and what it makes of them."""

    folder: Path
    clock: ManualClock
    certificate: Certificate

    def renew(self, host: str = "localhost") -> None:
        """As `tideline tls init` does it."""
        certificates.issue_coordinator(self.folder, [host])

    def write(self, name: str, content: bytes) -> None:
        """As somebody else does it."""
        (self.folder / name).write_bytes(content)

    def read(self, name: str) -> bytes:
        """What a file holds."""
        return (self.folder / name).read_bytes()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """A certificate in use, at the time of day."""
    return made(tmp_path / "tls")


def made(folder: Path, bundle: bool = False) -> Files:
    """The same. bundle: the authorities are in a file of their own."""
    certificates.issue_coordinator(folder, ["localhost"])
    names = TlsFiles(folder / "coordinator.pem", folder / "coordinator.key", None, folder / "bundle.pem" if bundle else None)
    if bundle:
        (folder / "bundle.pem").write_bytes((folder / "ca.pem").read_bytes())
    clock = ManualClock()
    clock.advance(datetime.now(UTC).timestamp())
    first = read_tls(names)
    assert first is not None
    return Files(folder, clock, Certificate(names, first, clock))


def test_a_new_certificate_is_taken_up(files: Files) -> None:
    """With its key, once; until when it is good is known."""
    before, ends = files.certificate.current, files.certificate.ends
    assert not files.certificate.reload() and files.certificate.current is before
    files.renew()
    with capture_logs() as lines:
        assert files.certificate.reload() and not files.certificate.reload()
    assert files.certificate.current.chain == files.read("coordinator.pem") != before.chain
    assert files.certificate.current.key == files.read("coordinator.key")
    assert files.certificate.ends >= ends and [line["event"] for line in lines] == ["certificate_renewed"]
    assert files.certificate.warnings() == () and context_of(files.certificate.current)


def half_written(files: Files) -> None:
    """A file that is being written, or whose disk was full."""
    files.renew()
    files.write("coordinator.pem", files.read("coordinator.pem")[:300])


def of_another_key(files: Files) -> None:
    """The key comes after the certificate, or not at all."""
    key = files.read("coordinator.key")
    files.renew()
    files.write("coordinator.key", key)


def half_a_key(files: Files) -> None:
    files.renew()
    files.write("coordinator.key", files.read("coordinator.key")[:60])


def no_file(files: Files) -> None:
    (files.folder / "coordinator.pem").unlink()


def ended(files: Files) -> None:
    """One that is of no use any more."""
    files.renew()
    files.clock.advance(400 * DAY)


def not_yet(files: Files) -> None:
    files.renew()
    files.clock.advance(-2 * DAY)


def broken_chain(files: Files) -> None:
    """The authority behind it did not sign it."""
    own, key = files.read("coordinator.pem"), files.read("coordinator.key")
    issued_elsewhere(files)
    files.write("coordinator.key", key)
    other = files.read("ca-of-others.pem")
    first = own[: own.index(b"-----END") + len(b"-----END CERTIFICATE-----\n")]
    files.write("coordinator.pem", first + other)


def without_its_authority(files: Files) -> None:
    """As of a public authority: agents know this one by its own."""
    files.renew()
    chain = files.read("coordinator.pem")
    files.write("coordinator.pem", chain[: chain.index(b"-----END") + len(b"-----END CERTIFICATE-----\n")])


def issued_elsewhere(files: Files) -> None:
    other = files.folder / "others"
    certificates.issue_coordinator(other, ["localhost"])
    for name in ("coordinator.pem", "coordinator.key"):
        files.write(name, (other / name).read_bytes())
    files.write("ca-of-others.pem", (other / "ca.pem").read_bytes())


WRONG = {
    "holds no certificate": half_written,
    "is not that of the certificate": of_another_key,
    "no private key that can be read": half_a_key,
    "cannot be read": no_file,
    "ended on": ended,
    "is good from": not_yet,
    "of an authority that agents do not know": issued_elsewhere,  # agents would be locked out
    "broken": broken_chain,
    "of a public authority": without_its_authority,
}


@pytest.mark.parametrize("why", WRONG)
def test_what_is_wrong_is_not_taken_up(files: Files, why: str) -> None:
    """The old one stays. The second reading says so, once: the first may have come between two files that are being written."""
    before, now = files.certificate.current, files.clock.now()
    WRONG[why](files)
    with capture_logs() as lines:
        assert not files.certificate.reload() and files.certificate.warnings() == () and lines == []
        assert not files.certificate.reload() and not files.certificate.reload()
    assert files.certificate.current is before
    assert [line["event"] for line in lines] == ["certificate_not_renewed"] and why in lines[0]["reason"]
    assert "the old one stays" in files.certificate.warnings()[0]
    files.clock.advance(now - files.clock.now())
    files.write("coordinator.pem", before.chain)
    files.write("coordinator.key", before.key)
    files.renew()
    assert files.certificate.reload() and files.certificate.warnings() == (), "a good one ends the warning"


def test_the_old_one_back_in_its_place_ends_the_warning(files: Files) -> None:
    before = files.certificate.current
    half_written(files)
    files.certificate.reload()
    files.certificate.reload()
    assert files.certificate.warnings()
    files.write("coordinator.pem", before.chain)
    files.write("coordinator.key", before.key)
    assert not files.certificate.reload() and files.certificate.warnings() == ()


def test_another_authority_step_by_step(tmp_path: Path) -> None:
    """First agents are to trust both, then the certificate is of the new one, then the old one goes. No step may be left out."""
    files = made(tmp_path / "tls", bundle=True)
    old, other = files.read("ca.pem"), tmp_path / "new"
    certificates.issue_coordinator(other, ["localhost"])
    new = (other / "ca.pem").read_bytes()
    files.write("bundle.pem", new)
    assert not files.certificate.reload(), "the certificate that is in use would be nobody's"
    files.write("bundle.pem", old + new)
    assert files.certificate.reload() and files.certificate.current.authorities == old + new
    for name in ("coordinator.pem", "coordinator.key"):
        files.write(name, (other / name).read_bytes())
    files.clock.advance(ANNOUNCED_SECONDS)
    files.write("bundle.pem", new)
    assert files.certificate.reload() and files.certificate.current.authorities == new
    assert authority_of(files.certificate.current.chain) == authority_of(new)


def test_an_authority_that_agents_have_not_been_told_of(tmp_path: Path) -> None:
    """Written into both files at once: it is announced, and its certificate shown once agents had the time to hear of it."""
    files = made(tmp_path / "tls", bundle=True)
    first, before = files.certificate.current, files.read("bundle.pem")
    issued_elsewhere(files)
    files.write("bundle.pem", before + files.read("ca-of-others.pem"))
    assert files.certificate.reload(), "the authorities"
    assert files.certificate.current.chain == first.chain and files.certificate.current.key == first.key
    assert files.certificate.current.authorities == before + files.read("ca-of-others.pem")
    files.clock.advance(ANNOUNCED_SECONDS - 1)
    assert not files.certificate.reload() and not files.certificate.reload()
    assert "only being told of" in files.certificate.trouble and files.certificate.current.chain == first.chain
    files.clock.advance(1)
    assert files.certificate.reload() and files.certificate.current.chain == files.read("coordinator.pem")
    assert files.certificate.warnings() == ()


def test_authorities_at_the_start(tmp_path: Path) -> None:
    """The chain's own must be among them, and there are not too many."""
    files = made(tmp_path / "tls", bundle=True)
    issued_elsewhere(files)
    names = TlsFiles(files.folder / "coordinator.pem", files.folder / "coordinator.key", None, files.folder / "bundle.pem")
    with pytest.raises(ConfigRefused, match="not in --tls-ca"):
        read_tls(names)
    files.write("bundle.pem", files.read("ca.pem") * (MOST_AUTHORITIES + 1))
    with pytest.raises(ConfigRefused, match="--tls-ca has 9 certificates"):
        read_tls(names)


def test_callers_certificates_are_of_those_that_are_named_now(files: Files, tmp_path: Path) -> None:
    """What signs agents' own is read anew, too; a port that asks for none asks for none."""
    names = TlsFiles(files.folder / "coordinator.pem", files.folder / "coordinator.key", tmp_path / "clients.pem")
    (tmp_path / "clients.pem").write_bytes(files.read("ca.pem"))
    first = read_tls(names)
    assert first is not None
    certificate = Certificate(names, first, files.clock)
    certificates.issue_coordinator(tmp_path / "more", ["localhost"])
    (tmp_path / "clients.pem").write_bytes(files.read("ca.pem") + (tmp_path / "more" / "ca.pem").read_bytes())
    assert certificate.reload()
    context = context_of(certificate.current, ssl.CERT_REQUIRED)
    assert context.verify_mode is ssl.CERT_REQUIRED and len(context.get_ca_certs()) == 2
    assert context_of(certificate.current).verify_mode is ssl.CERT_NONE and credentials_of(certificate)


def test_no_key_is_left_behind(files: Files) -> None:
    """A context is made of bytes by way of a file, which goes at once."""
    places = [place for place in (Path("/dev/shm"), Path("/tmp")) if place.is_dir()]
    before = {each for place in places for each in place.glob("tmp*/own.pem")}
    context_of(files.certificate.current)
    assert {each for place in places for each in place.glob("tmp*/own.pem")} <= before


def test_a_certificate_without_many_days_left_is_taken_up(files: Files) -> None:
    """Its end is told by the warnings that there are; the hour before its beginning is for clocks that differ."""
    files.renew()
    files.clock.advance(380 * DAY)
    assert files.certificate.reload()
    leaf = x509.load_pem_x509_certificates(files.certificate.current.chain)[0]
    assert leaf.not_valid_before_utc <= datetime.now(UTC) - timedelta(minutes=59)


def test_who_was_let_in_a_moment_before_is_answered(files: Files) -> None:
    """A connection that the old listener has accepted, and that has not begun its handshake, gets one."""

    async def play() -> str | None:
        config = uvicorn.Config(silent, log_config=None, lifespan="off")
        config.load()
        config.ssl, server = context_of(files.certificate.current), QuietServer(config, Handshakes())
        server.lifespan = config.lifespan_class(config)
        with socket.create_server(("127.0.0.1", 0)) as port:
            await server.startup([port])
            renewed = asyncio.create_task(server.renew(context_of(files.certificate.current)))
            line = socket.create_connection(port.getsockname())  # the look that begins the renewal finds it, too
            try:
                await renewed
                return await asyncio.to_thread(handshaken, line)
            finally:
                for each in server.servers:
                    each.close()

    assert asyncio.run(play()) is not None


def handshaken(line: socket.socket) -> str | None:
    """The version of TLS that the other end speaks. Raises OSError where it is gone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    line.settimeout(60.0)
    with context.wrap_socket(line) as tls:
        return tls.version()


async def silent(scope: object, receive: object, send: object) -> None:
    """An application that is never asked."""
