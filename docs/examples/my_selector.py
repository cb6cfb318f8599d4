
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import validate_data


class FisherSelector(SelectorMixin, BaseEstimator):
    def __init__(self, n_features_to_select=10):
        self.n_features_to_select = n_features_to_select

    def fit(self, X, y):
        X, y = validate_data(self, X, y)
        means = np.array([X[y == c].mean(axis=0) for c in np.unique(y)])
        within = np.mean([X[y == c].var(axis=0) for c in np.unique(y)], axis=0)
        self.scores_ = means.var(axis=0) / (within + 1e-3)
        self.order_ = np.argsort(-self.scores_, kind="stable")
        return self

    def _get_support_mask(self):
        mask = np.zeros(len(self.order_), dtype=bool)
        mask[self.order_[: self.n_features_to_select]] = True
        return mask
