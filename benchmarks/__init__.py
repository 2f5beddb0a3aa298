"""Speed and memory, measured side by side. Never asserted in tests."""
