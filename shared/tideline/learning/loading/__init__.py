"""Rows ahead of the step that uses them: read by threads, changed at random where a run trains on images."""
