"""Rehearsals: candidates tried at labelled sites that play the target, and what follows for the targets."""
