"""Federations whose every part is killed, frozen and cut at random moments; what was lived is written down and checked."""
