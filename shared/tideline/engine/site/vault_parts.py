"""Which parts a vault keeps of a run."""

from __future__ import annotations

from tideline.archive.parts import Parts
from tideline.engine.model.orders import Files
from tideline.engine.peers.sealing import ciphers
from tideline.engine.ports.site import Head


def collect(parts: Parts, head: Head | None, files: Files) -> None:
    """Forget the parts of a run that neither its head nor the order at hand names."""
    live = {digest for digest, _ in files}
    if head is not None:
        live |= {digest for digest, _ in (*head.memory, *head.reply, *ciphers(head.sealed), *head.own)}
    for digest in parts.digests():
        if digest not in live:
            parts.drop(digest)
