"""A federation in memory, dossiers of its runs, and archives that somebody else has put together."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.synthetic import experiment, sites
from tideline.algorithms import METHODS
from tideline.core.run import ClientId, RunId
from tideline.core.settings import EMPTY
from tideline.dossier.container import Writer, checked, members_in
from tideline.dossier.layout import FIRST_LINE, KEY, NAMES, SIGNATURE, SUMS
from tideline.dossier.making import Maker
from tideline.dossier.signing import Signer
from tideline.dossier.verifying import Dossier, read
from tideline.engine.audit.entries import signer_introduced
from tideline.engine.model.said.disclosed import Disclosed
from tideline.engine.ports.journal import Journal
from tideline.engine.simulation.federation import Federation, SimSite

ROSTER = {"anna": "source", "bert": "source", "carl": "target"}
OURS, OTHER = (Signer(Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)) for seed in (1, 2))
VERSION = "9.9.9"
PAGE_TIME = 86400.0 * 20000


def played(
    asked: Mapping[str, Any] | None = None,
    there: Mapping[str, SimSite] | None = None,
    disclosing: Mapping[str, Disclosed] = EMPTY,
) -> tuple[Federation, RunId]:
    """A federation whose run has ended, and whose log knows the key. disclosing: what owners let be told."""
    federation = Federation(METHODS, there or sites())
    for name, found in disclosing.items():
        federation.agents[ClientId(name)].owner.discloses = lambda project, found=found: found  # type: ignore[misc]
    federation.clock.advance(PAGE_TIME)
    federation.journal.record([signer_introduced(OURS.fingerprint, OURS.public, "alice", federation.clock.now())])
    run = federation.start(asked or experiment("fedavg", ROSTER))
    federation.run(run)
    return federation, run


def made(journal: Journal, run: RunId, signer: Signer = OURS, at: float | None = None) -> bytes:
    out = io.BytesIO()
    size = Maker(journal, signer, VERSION).make(run, out, at)
    assert len(out.getvalue()) == size
    return out.getvalue()


def verified(content: bytes, signer: str = "") -> Dossier:
    return read(io.BytesIO(content), signer)


def contents(content: bytes) -> dict[str, bytes]:
    file = io.BytesIO(content)
    return {each.name: b"".join(checked(file, each)) for each in members_in(file, NAMES)}


def part(content: bytes, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(contents(content)[name])
    return found


def lines(content: bytes, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in contents(content)[name].splitlines()]


def packed(files: Mapping[str, bytes], names: Sequence[str] = NAMES) -> bytes:
    """An archive in a dossier's form, whatever is in it."""
    out = io.BytesIO()
    writer = Writer(out)
    for name in names:
        writer.add(name, files[name])
    writer.finish()
    return out.getvalue()


def signed(files: Mapping[str, bytes], signer: Signer = OURS) -> bytes:
    """A dossier that a key's holder has made of such files: its sums and its signature fit."""
    files = {**files, KEY: signer.pem}
    sums = FIRST_LINE + "".join(f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in NAMES[:-2])
    return packed({**files, SUMS: sums.encode(), SIGNATURE: signer.sign(sums.encode())})
