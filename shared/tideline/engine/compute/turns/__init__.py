"""The coordinator's turns: whom a phase asks, and what a fold makes of the replies."""
