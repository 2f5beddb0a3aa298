"""The agent: installed beside the data. It pulls work and pushes only what the run's contract lets out."""
