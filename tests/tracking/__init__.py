"""Followers that write runs into experiment trackers: real ones, where their packages are installed."""
