"""Who should teach whom: bounds, energies, the problem of links and its solvers."""
