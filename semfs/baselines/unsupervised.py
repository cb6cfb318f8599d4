"""Baselines that look at the features only: Random, Variance, MCFS, FSASL."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state
from sklearn.utils.sparsefuncs import mean_variance_axis

from semfs.baselines.fitting import (
    check_enough,
    column_std,
    gram_matrix,
    last_if_constant,
)
from semfs.baselines.graph import (
    mean_distance,
    nearest_neighbors,
    neighbor_graph,
    spectral_embedding,
)
from semfs.baselines.lars import lars_coefficients
from semfs.baselines.structure import (
    StructureOptions,
    learn_structure,
)
from semfs.progress import Progress
from semfs.selectors.base import RankingSelector, constant_columns
from semfs.validation import check_integer, check_number, check_option

__all__ = ["FSASL", "MCFS", "RandomSelector", "VarianceSelector"]


class RandomSelector(RankingSelector):
    """Rank the features in random order: what any method has to beat.

    Constant columns still come last, so that it draws from the same candidates as the
    other selectors.

    Parameters
    ----------
    n_features_to_select : int, default=50
    random_state : int, RandomState or None, default=None
        Pass an int for the same order every time.

    Attributes
    ----------
    scores_ : ndarray of shape (d,)
        Uniform random numbers, ``-inf`` for constant columns.
    order_, ranking_ : ndarray of shape (d,)
        Feature indices, best first; position of each feature, 1 = best.

    Examples
    --------
    >>> import numpy as np
    >>> from semfs.baselines import RandomSelector
    >>> X = np.arange(12.0).reshape(3, 4)
    >>> RandomSelector(2, random_state=0).fit(X).transform(X).shape
    (3, 2)
    """

    def __init__(self, n_features_to_select: int = 50, *, random_state: Any = None) -> None:
        self.n_features_to_select = n_features_to_select
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> RandomSelector:
        """Draw an order; X (n, d) may be sparse, y is ignored."""
        with self._all_or_nothing():
            X, _, _ = self._check_training_data(X, accept_sparse=True)
            scores = check_random_state(self.random_state).uniform(size=X.shape[1])
            self._set_ranking(last_if_constant(scores, constant_columns(X)))
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class VarianceSelector(RankingSelector):
    """Rank the features by their variance, ``score_j = (1/n) Σ_i (x_ij - x̄_j)²``.

    Parameters
    ----------
    n_features_to_select : int, default=50

    Attributes
    ----------
    scores_ : ndarray of shape (d,)
        Population variances in float64, ``-inf`` for constant columns.
    order_, ranking_ : ndarray of shape (d,)
        Feature indices, best first; position of each feature, 1 = best.

    Examples
    --------
    >>> import numpy as np
    >>> from semfs.baselines import VarianceSelector
    >>> X = np.array([[0.0, 5.0, 1.0], [1.0, 5.0, 9.0], [2.0, 5.0, 5.0]])
    >>> VarianceSelector(1).fit(X).order_
    array([2, 0, 1])
    """

    def __init__(self, n_features_to_select: int = 50) -> None:
        self.n_features_to_select = n_features_to_select

    def fit(self, X: Any, y: Any = None) -> VarianceSelector:
        """Rank by variance; X (n, d) may be sparse, y is ignored."""
        with self._all_or_nothing():
            X, _, _ = self._check_training_data(X, accept_sparse=True)
            variance = (
                mean_variance_axis(X, axis=0)[1] if sp.issparse(X) else column_std(X) ** 2
            )
            self._set_ranking(last_if_constant(variance, constant_columns(X)))
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class MCFS(RankingSelector):
    """Multi-Cluster Feature Selection (Cai, Zhang and He, KDD 2010).

    1. A nearest-neighbour graph W on the rows of X; the K smoothest non-trivial solutions
       of ``(D - W) y = λ D y`` embed the samples.
    2. Each coordinate is explained by ``n_features_to_select`` features,
       ``min_a ‖y_q - Xa‖²  s.t.  card(a) = k``, on the LARS-lasso path.
    3. ``score_j = max_q |a_qj|`` over the coefficient vectors at unit length.

    Parameters
    ----------
    n_features_to_select : int, default=50
        Also the cardinality k of the regressions: scores depend on it.
    n_components : int, default=5
        Number K of embedding coordinates; the number of clusters if you know it.
    n_neighbors : int, default=5
    weight : {"heat", "binary"}, default="heat"
        Edge weights ``exp(-distance²/(2 width²))``, or 1.
    heat_width : float or None, default=None
        Width of the heat kernel, a length. None is the mean of all n² distances
        (estimated on 3,000 random rows above 3,000); see ``heat_width_``.
    random_state : int, RandomState or None, default=0
        For that draw only.
    verbose : bool or int, default=0

    Attributes
    ----------
    scores_ : ndarray of shape (d,)
        Larger is better, ``-inf`` for constant columns.
    order_, ranking_ : ndarray of shape (d,)
        Feature indices, best first; position of each feature, 1 = best.
    embedding_ : ndarray of shape (n, K)
    eigenvalues_ : ndarray of shape (K,)
        Of ``D^-1/2 W D^-1/2``; 1 once per component of the graph beyond the first.
    coef_ : ndarray of shape (d, K)
        Unit-length regression coefficients.
    heat_width_ : float or None
        The width used.

    Notes
    -----
    As the authors' program v1.1 in every step, with these differences:

    - constant columns are left out before the regressions (they could serve as an
      intercept there) and rank last;
    - equal distances are decided by the lower index, a row is never its own neighbour
      even among duplicates;
    - a graph in several pieces: the original keeps whatever basis its eigensolver returns
      for the repeated eigenvalue; here the coordinates are component indicators, largest
      component first, and a warning says so. Results do not depend on the solver;
    - the coefficients are those at the *first* visit of the path to k non-zero entries;
      asked for several cardinalities at once the original overwrites them with later
      visits. If the path ends before k, its end is used (the original raises an error);
    - the path is followed on XᵀX, computed blockwise in the dtype of X and summed in
      float64, instead of on X.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from semfs.baselines import MCFS
    >>> X = load_digits().data[:300]
    >>> MCFS(10, n_components=10).fit(X).transform(X).shape
    (300, 10)
    """

    def __init__(
        self,
        n_features_to_select: int = 50,
        *,
        n_components: int = 5,
        n_neighbors: int = 5,
        weight: str = "heat",
        heat_width: float | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.weight = weight
        self.heat_width = heat_width
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> MCFS:
        """Rank the features of X (n, d); y is ignored."""
        with self._all_or_nothing():
            X, _, _ = self._check_training_data(X)
            self._check_parameters()
            constant = constant_columns(X)
            check_enough("MCFS", X, constant)
            kept = X if not constant.any() else X[:, ~constant]
            with Progress("MCFS", 3, self.verbose) as progress:
                W, width = self._graph(kept)
                progress.step(f"graph: {W.nnz} edges")
                embedding, eigenvalues = spectral_embedding(W, self.n_components)
                progress.step(f"embedding: {embedding.shape[1]} coordinates")
                coef = lars_coefficients(
                    kept, embedding, self.n_features_to_select, gram=gram_matrix(kept)
                )
                progress.step("regressions")
            self.heat_width_ = width
            self.embedding_ = embedding
            self.eigenvalues_ = eigenvalues
            self.coef_ = np.zeros((X.shape[1], coef.shape[1]))
            self.coef_[~constant] = coef
            self._set_ranking(last_if_constant(np.abs(self.coef_).max(axis=1), constant))
        return self

    def _graph(self, X: np.ndarray) -> tuple[Any, float | None]:
        squared, index = nearest_neighbors(X, self.n_neighbors)
        if self.weight == "binary":
            return neighbor_graph(squared, index), None
        width = self.heat_width
        if width is None:
            width = mean_distance(X, check_random_state(self.random_state))
        return neighbor_graph(squared, index, width), float(width)

    def _check_parameters(self) -> None:
        check_option("weight", self.weight, ("heat", "binary"))
        check_integer("n_components", self.n_components, 1)
        check_integer("n_neighbors", self.n_neighbors, 1)
        if self.heat_width is not None:
            check_number("heat_width", self.heat_width, above=0)


class FSASL(RankingSelector):
    """Feature Selection with Adaptive Structure Learning (Du and Shen, KDD 2015).

    With ``Z = XW``, codes S and neighbour probabilities P the paper poses::

        min  ‖Zᵀ - ZᵀS‖² + α‖S‖₁ + λ2 Σ_ij (‖z_i - z_j‖² P_ij + μ P_ij²) + λ3‖W‖_{2,1}
        s.t. S_ii = 0,  P1 = 1, P ≥ 0,  WᵀXᵀXW = I

    and ranks by ``score_i = ‖w_i‖``. The released program, followed here, alternates:
    codes by one lasso per sample, P by simplex projections over the nearest rows of Z,
    then the eigenvectors Q of the smallest eigenvalues of
    ``(I-S)(I-S)ᵀ + λ2 (diag(P̄1) - P̄)``, and W by ten reweighted ridge solves of
    ``‖Q - XW‖² + λ3‖W‖_{2,1}``.

    Parameters
    ----------
    n_features_to_select : int, default=50
        Does not change the scores (unless ``n_iter_no_change`` is set).
    n_components : int or None, default=None
        Number c of eigenvectors, the number of clusters if you know it. None is 5. Cap it
        (say at 50) when there are hundreds of clusters: every step grows with it.
    lambda2, lambda3 : float, default=1.0
        Weight of the neighbour term; row sparsity of W.
    ratio : float in (0, 1), default=0.01
        Lasso penalty of each code as a fraction of the smallest that gives 0.
    n_neighbors : int, default=5
    max_iter : int, default=20
        Rounds. As in the original, with 5 or more the first round has no codes: below and
        above are different algorithms.
    inner : {"exact", "reference"}, default="exact"
        Solve the lassos exactly (the paper), or stop each after its objective changes by
        at most 1e-3 (the released program, whose codes are far from sparse).
    mu : {"initial", "adaptive"}, default="initial"
        μ from the distances between rows of X, once (the released program; the much
        smaller distances in Z then make P nearly uniform over the neighbours), or again
        from Z in every round (closer to the paper's intent).
    max_samples : int or None, default=None
        Work on that many rows, drawn at random: the cost grows with n³. 2,000 to 3,000
        is a good size.
    candidates : int or None, default=None
        Let only that many nearest rows take part in a code (``inner="exact"`` only). No
        n × n array is formed then.
    n_iter_no_change : int or None, default=None
        Stop when the set of selected features has not changed for so many rounds. None
        runs all rounds, as published; 3 is a good choice on large data.
    random_state : int, RandomState or None, default=0
        For the draws of ``max_samples`` and of the heat width.
    verbose : bool or int, default=0

    Attributes
    ----------
    scores_ : ndarray of shape (d,)
        Row norms of W, ``-inf`` for constant columns.
    order_, ranking_ : ndarray of shape (d,)
        Feature indices, best first; position of each feature, 1 = best.
    coef_ : ndarray of shape (d, c)
        W.
    objective_ : ndarray of shape (n_steps,)
        The value the original prints after each round; it need not decrease.
    mu_ : float
        The last μ.
    n_iter_ : int

    Notes
    -----
    Differences from the released program:

    - ``inner="exact"`` is the default because the released inner solver stops where
      rounding tells it to: ``inner="reference"`` reproduces its numbers;
    - constant columns are left out and rank last;
    - the ridge solves use an n × n matrix when n < d, as the original intends but never
      does (it compares n with a vector);
    - the weight λ1 of the code term is 1, as in the published experiments;
    - ``max_samples`` draws uniformly, not by class: the method must not see labels;
    - ``max_samples``, ``candidates``, ``n_iter_no_change``, ``mu="adaptive"`` are additions.

    Large products run in the dtype of X, codes, eigenvectors and factors in float64.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from semfs.baselines import FSASL
    >>> X = load_digits().data[:100]
    >>> FSASL(10, n_components=10, max_iter=5).fit(X).transform(X).shape
    (100, 10)
    """

    def __init__(
        self,
        n_features_to_select: int = 50,
        *,
        n_components: int | None = None,
        lambda2: float = 1.0,
        lambda3: float = 1.0,
        ratio: float = 0.01,
        n_neighbors: int = 5,
        max_iter: int = 20,
        inner: str = "exact",
        mu: str = "initial",
        max_samples: int | None = None,
        candidates: int | None = None,
        n_iter_no_change: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.n_components = n_components
        self.lambda2 = lambda2
        self.lambda3 = lambda3
        self.ratio = ratio
        self.n_neighbors = n_neighbors
        self.max_iter = max_iter
        self.inner = inner
        self.mu = mu
        self.max_samples = max_samples
        self.candidates = candidates
        self.n_iter_no_change = n_iter_no_change
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> FSASL:
        """Rank the features of X (n, d); y is ignored."""
        with self._all_or_nothing():
            X, _, _ = self._check_training_data(X)
            self._check_parameters()
            rng = check_random_state(self.random_state)
            rows = X
            if self.max_samples is not None and self.max_samples < X.shape[0]:
                rows = X[np.sort(rng.choice(X.shape[0], self.max_samples, replace=False))]
            constant = constant_columns(rows)
            check_enough("FSASL", rows, constant)
            kept = rows if not constant.any() else rows[:, ~constant]
            with Progress("FSASL", self.max_iter, self.verbose) as progress:
                result = learn_structure(kept, self._options(kept), rng, progress.step)
            self.coef_ = np.zeros((X.shape[1], result.W.shape[1]))
            self.coef_[~constant] = result.W
            self.objective_ = result.objective
            self.mu_ = result.mu
            self.n_iter_ = len(result.objective)
            self._set_ranking(last_if_constant(np.linalg.norm(self.coef_, axis=1), constant))
        return self

    def _options(self, X: np.ndarray) -> StructureOptions:
        wanted = 5 if self.n_components is None else self.n_components
        return StructureOptions(
            n_components=min(wanted, X.shape[0]),
            n_neighbors=min(self.n_neighbors, X.shape[0] - 1),
            lambda2=self.lambda2,
            lambda3=self.lambda3,
            ratio=self.ratio,
            max_iter=self.max_iter,
            released=self.inner == "reference",
            adaptive=self.mu == "adaptive",
            candidates=self.candidates,
            patience=self.n_iter_no_change,
            k=self.n_features_to_select,
        )

    def _check_parameters(self) -> None:
        check_option("inner", self.inner, ("exact", "reference"))
        check_option("mu", self.mu, ("initial", "adaptive"))
        for name in ("n_neighbors", "max_iter"):
            check_integer(name, getattr(self, name), 1)
        for name in ("n_components", "candidates", "n_iter_no_change"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), 1)
        if self.max_samples is not None:
            check_integer("max_samples", self.max_samples, 2)
        check_number("lambda2", self.lambda2, at_least=0)
        check_number("lambda3", self.lambda3, above=0)
        check_number("ratio", self.ratio, above=0)
        if self.ratio >= 1:
            raise ValueError(
                f"ratio must be below 1 (at 1 every code is 0); got {self.ratio!r}."
            )
        if self.candidates is not None and self.inner == "reference":
            raise ValueError(
                "candidates is for inner='exact' only: the released program lets every row "
                "take part. Drop candidates, or use max_samples to bound the cost."
            )
