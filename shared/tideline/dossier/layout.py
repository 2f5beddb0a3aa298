"""The files of a dossier: their names, in the order in which they stand, and what each is for."""

from __future__ import annotations

from typing import TypeAlias

from tideline.core.settings import Plain

FORMAT = "tideline dossier 1"
Part: TypeAlias = dict[str, Plain]  # what one of the files says
AUDIT, REPLIES = "audit.jsonl", "replies.jsonl"
RUN, CONTRACT, POLICIES, EGRESS = "run.json", "contract.json", "policies.json", "egress.json"
METRICS, PRIVACY, HEADS = "metrics.json", "privacy.json", "heads.json"
PAGE, KEY, SUMS, SIGNATURE = "dossier.html", "signer.pem", "SHA256SUMS", "SHA256SUMS.sig"
PARTS = (RUN, CONTRACT, POLICIES, EGRESS, METRICS, PRIVACY, HEADS)
# What is signed comes last but one, and the signature last.
NAMES = (AUDIT, REPLIES, *PARTS, PAGE, KEY, SUMS, SIGNATURE)
FIRST_LINE = f"# {FORMAT}\n"  # of SHA256SUMS: `sha256sum -c` passes over it
WHAT = {
    PAGE: "this page, made of the other files",
    RUN: "what ran, how far it is, digests, software",
    CONTRACT: "what may leave a site, in words and as data",
    POLICIES: "what each site said of it",
    EGRESS: "what left each site, by phase, with fields and exposures",
    REPLIES: "each reply: order, digests, sizes, times, metrics",
    METRICS: "scores with intervals, and whether adaptation did harm",
    PRIVACY: "epsilon by site, if the run is private",
    AUDIT: "the audit log's entries about the run, each with the hash before it",
    HEADS: "where the log's chain begins, and where it ended",
    KEY: "the public key that signed",
    SUMS: "SHA-256 of each file above; this is what is signed",
    SIGNATURE: "the signature (Ed25519, 64 bytes)",
}
