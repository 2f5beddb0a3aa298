"""What a run asks of its sites beside its method: its world, cohorts, scorings, how steps compute."""
