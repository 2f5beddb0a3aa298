"""The benchmarks themselves, in their small forms."""
