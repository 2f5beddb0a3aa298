"""Columns that a world declares: their cells as inputs, what fast readers make of them, and a proposal of columns that fit."""
