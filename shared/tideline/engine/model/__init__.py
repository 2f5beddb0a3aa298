"""The values of the engine: frozen, without effects."""
