"""Selectors as users write them, in a module of the working directory."""

SOURCE = '''
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin


class Reversed(SelectorMixin, BaseEstimator):
    """Ranks the last column first."""

    def __init__(self, n_features_to_select=3, attributes=None):
        self.n_features_to_select = n_features_to_select
        self.attributes = attributes

    def fit(self, X, y):
        assert self.attributes is not None, "no class table was passed on"
        self.order_ = np.arange(X.shape[1])[::-1]
        return self

    def _get_support_mask(self):
        return np.isin(np.arange(len(self.order_)), self.order_[: self.n_features_to_select])


class Broken(Reversed):
    def fit(self, X, y):
        raise RuntimeError("it never works")


class Iterative(Reversed):
    """Takes the parameters that convergence varies, but records no objective."""

    def __init__(self, n_features_to_select=3, attributes=None, max_iter=1, tol=0.0):
        super().__init__(n_features_to_select, attributes)
        self.max_iter = max_iter
        self.tol = tol


class NeedsNumbers(SelectorMixin, BaseEstimator):
    """Computes with y, as selectors for regression and classification do."""

    def __init__(self, k=3):
        self.k = k

    def fit(self, X, y):
        self.scores_ = np.abs(X.T @ np.asarray(y, dtype=float))
        return self

    def _get_support_mask(self):
        return self.scores_ >= np.sort(self.scores_)[-self.k]


number = 5
'''
