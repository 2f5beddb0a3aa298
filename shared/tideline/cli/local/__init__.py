"""Commands that need no coordinator: methods, simulations, comparisons, the demonstration, certificates."""
