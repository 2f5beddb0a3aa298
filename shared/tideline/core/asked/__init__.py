"""What a run asks of its sites beside method and world."""
