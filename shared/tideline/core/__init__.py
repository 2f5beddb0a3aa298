"""The vocabulary: values and types that every other layer speaks. Imports nothing of ours."""
