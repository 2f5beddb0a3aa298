"""Runs and clients of the journal's tests."""

from __future__ import annotations

from tideline.core.run import ClientId, RunId

RUN = RunId("run-a")
OTHER = RunId("run-b")
ANN, BOB, CYD = ClientId("ann"), ClientId("bob"), ClientId("cyd")
TEAM = (ANN, BOB, CYD)
