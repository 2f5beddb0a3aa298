"""What keeps an agent from working, found before it starts."""
