"""Default parameters of the methods of a comparison, and the grids on which they are tuned."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from semfs.lab.compared_method import Params, Size

#: The grid on which the paper tunes every parameter of its baselines, and that of `--fast`.
GRID = (0.01, 0.1, 1.0, 10.0, 100.0)
FAST_GRID = (0.1, 1.0, 10.0)

# Above these numbers of samples a method runs with options that bound its cost; results
# record them. Chosen so that a grid point takes minutes, not hours, on two cores.
WKNN_FULL_BATCH = 1000
WKNN_BATCH = 512
FSASL_SAMPLES = 500
MCFS_NARROW_SAMPLES = 1000
L20ALM_SAMPLES = 2000

#: Most eigenvectors of MCFS and FSASL; the paper takes as many as there are classes.
MOST_COMPONENTS = 50


@dataclass(frozen=True)
class PaperGrid:
    """The paper's grid of some parameters; for a quick trial a coarse one, all equal."""

    names: tuple[str, ...]
    fixed: tuple[tuple[str, float], ...] = ()

    def __call__(self, size: Size) -> list[Params]:
        """Return the grid points."""
        if size.fast:
            points = [dict.fromkeys(self.names, value) for value in FAST_GRID]
        else:
            values = itertools.product(GRID, repeat=len(self.names))
            points = [dict(zip(self.names, value)) for value in values]
        return [point | dict(self.fixed) for point in points]


def mcfs_params(size: Size) -> Params:
    """Return as many eigenvectors as there are classes, up to a limit."""
    return {"n_components": min(size.n_classes, MOST_COMPONENTS)}


def mcfs_grid(size: Size) -> list[Params]:
    """Return heat widths in units of the automatic one (1 is that one), and binary weights."""
    points = PaperGrid(("heat_width_factor",))(size)
    # With a narrow kernel the graph nearly falls into parts, and iterative eigensolvers do
    # not converge. A sample of the rows, small enough for a dense solver, is used instead.
    for point in points:
        if point["heat_width_factor"] < 1.0 and size.n_samples > MCFS_NARROW_SAMPLES:
            point["max_rows"] = MCFS_NARROW_SAMPLES
    return [*points, {"weight": "binary"}]


def fsasl_params(size: Size) -> Params:
    """Return options that bound the cost of FSASL, whose time grows with n³."""
    params = mcfs_params(size)
    params["n_iter_no_change"] = 3  # rounds with the same selection, then it stops
    # Its time grows with n³.
    if size.n_samples > FSASL_SAMPLES:
        params["max_samples"] = FSASL_SAMPLES
    if size.fast:
        params["max_iter"] = 6  # instead of 20
    return params


def l20alm_params(size: Size) -> Params:
    """Return options that bound the cost of L20ALM."""
    # Each of 150 iterations, for every k, multiplies X by a matrix with a column per class
    # three times: minutes for 9,000 samples of 4,000 features in 150 classes.
    if size.n_samples > L20ALM_SAMPLES:
        return {"max_rows": L20ALM_SAMPLES}
    return {}


def wknn_params(size: Size) -> Params:
    """Return options that bound the cost of WkNN."""
    params: Params = {}
    if size.fast:
        params["max_iter"] = 100
    # The kernel of a full batch has n² entries.
    if size.n_samples > WKNN_FULL_BATCH:
        params["batch_size"] = WKNN_BATCH
    return params


def lasso_params(size: Size) -> Params:
    """Return the tolerance of large problems."""
    # The tolerance that the selector itself takes for large problems; its default for
    # small ones, 1e-12, costs many more steps.
    return {"tol": 1e-4, "max_iter": 1000}


@dataclass(frozen=True)
class FixedParams:
    """Parameters that do not depend on the size of the problem."""

    params: tuple[tuple[str, Any], ...]

    def __call__(self, size: Size) -> Params:
        """Return the parameters."""
        return dict(self.params)
