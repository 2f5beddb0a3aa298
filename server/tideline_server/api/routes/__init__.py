"""The HTTP API's routes. They translate and call; they hold no logic."""
