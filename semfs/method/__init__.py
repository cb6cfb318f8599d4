"""The method: moments of labeled rows, the objective they make, and its two solvers."""
