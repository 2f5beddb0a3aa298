"""How far apart domains lie, and what draws them together: moments, adversaries, statistics."""
