"""What goes on while somebody listens."""
