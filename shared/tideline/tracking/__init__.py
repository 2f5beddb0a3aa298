"""Followers of runs that write them into experiment trackers. The coordinator knows nothing of them."""
