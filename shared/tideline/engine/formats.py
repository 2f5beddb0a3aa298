"""The numbers of formats that have no number of their own in each file. They are frozen: docs/upgrading.md.

Whoever changes what a format means raises its number, and goes on to read what the numbers before mean.
"""

from __future__ import annotations

VAULT = 1  # runs/ of an agent's home: heads, briefs, parts
LEDGER = 1  # ledger.jsonl and what stands beside it
AUDIT = 1  # entries of the audit log, exported or archived
