"""What the engine needs from outside. Each port has an in-memory adapter and a real one, and one suite that tests both."""
