"""How a step's message is packed, and what a site keeps for it."""
