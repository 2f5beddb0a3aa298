"""A process of its own that answers calls, as plain data over pipes, and what such processes do about memory and files."""
