"""The method: moments of labelled rows, the objective they make, and its two solvers."""
