"""Formulas: pure functions of tensors, no federation in them."""
