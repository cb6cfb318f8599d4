"""Base classes of all selectors: from scores to a ranking, and what a linear model adds."""

import functools
import html
import inspect
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from semfs import validation
from semfs.attributes import AttributeTable, as_attribute_table
from semfs.labels import encode_labels, label_array
from semfs.method.moments import Moments
from semfs.rows import Rows, as_genes, as_plain, column_places, device, plain_blocks
from semfs.rows.device import as_numpy, floating_dtypes, like
from semfs.selectors.prediction import ClassPredictor, same_space
from semfs.selectors.training import TrainingData, split_labels
from semfs.system import memory_limit, size_text
from semfs.validation import check_integer, check_weights

NO_NAMES = "X does not have valid feature names"  # scikit-learn's, of names we have compared
REMEMBERED_BYTES = 256 * 2**20  # of rows that are remembered, for explain without arguments
SHOWN = 200  # features in a notebook; get_feature_names_out() has the rest


class RankingSelector(SelectorMixin, BaseEstimator):
    """Keep the best ``n_features_to_select`` features of a total ranking.

    A subclass implements ``fit``: it calls :meth:`_check_training_data`, computes one
    score per feature (larger is better) and hands them to :meth:`_set_ranking`.
    """

    n_features_to_select: Any  # a number or share; of SemFSCV also "auto"
    # what parameters may be: words, whole numbers from, numbers from, numbers above
    _words: ClassVar[dict[str, tuple[str, ...]]] = {}
    _whole: ClassVar[dict[str, int]] = {}
    _at_least: ClassVar[dict[str, float]] = {}
    _above: ClassVar[dict[str, float]] = {}
    _supervised = False
    _takes_sparse = False

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self._supervised
        tags.input_tags.sparse = self._takes_sparse
        return tags

    def _check_training_data(
        self, X: Any, y: Any, *, reset: bool = True, **options: Any
    ) -> tuple[Any, Any, Any]:
        """X, class labels (C,) and codes (n,), checked; both None without y, if allowed."""
        plain = as_plain(X, y)
        X, y = plain.X, plain.y
        if str(getattr(X, "dtype", "")) == "float16":
            X = X.astype(np.float32)  # half precision is for storage, not for sums
        options["accept_sparse"] = ("csr", "csc") if self._takes_sparse else False
        options["dtype"] = floating_dtypes(X) or [np.float64, np.float32]
        X = validated(self, replace(plain, X=X), reset=reset, **options)
        self._check_n_features_to_select()
        if y is None and not self._supervised:
            return X, None, None
        classes, codes = encode_labels(y, n_samples=X.shape[0])
        return X, classes, codes

    def _check_parameters(self) -> None:
        """Raise if a parameter has no meaning; None is fine where it is the default."""
        for name, value in self.get_params(deep=False).items():
            if value is None and getattr(type(self), name) is None:
                continue
            number = name in self._whole | self._above
            if name in self._words and (isinstance(value, str) or not number):
                validation.check_option(name, value, self._words[name])
            elif name in self._whole:
                check_integer(name, value, self._whole[name])
            elif name in self._at_least:
                validation.check_number(name, value, at_least=self._at_least[name])
            elif name in self._above:
                validation.check_number(name, value, above=self._above[name])

    def _check_n_features_to_select(self) -> None:
        k = self.n_features_to_select
        if not (isinstance(k, (float, np.floating)) and 0 < k < 1):
            check_integer("n_features_to_select", k, 1)

    def _n_wanted(self, d: int) -> int:
        """How many of d features are asked for; of a share (below 1) at least one."""
        k = self.n_features_to_select
        return int(k if k >= 1 else max(1, k * d))

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Undo changes of fitted attributes if the block fails or is interrupted."""
        before = {name: value for name, value in vars(self).items() if name.endswith("_")}
        try:
            yield
        except BaseException:
            for name in [name for name in vars(self) if name.endswith("_")]:
                delattr(self, name)
            self.__dict__.update(before)
            raise

    def _set_ranking(self, scores: np.ndarray) -> None:
        """Store a ranking by scores (d,), ties by index; -inf for columns that rank last."""
        found = self._ranking_attributes(scores, stable_order(scores), len(scores))
        self.__dict__.update(found)
        self._warn_if_too_many(len(scores))

    def _ranking_attributes(
        self, scores: np.ndarray, order: np.ndarray, n_selectable: int
    ) -> dict[str, np.ndarray]:
        """The fitted attributes that follow from scores and order."""
        ranking = 1 + np.argsort(order)  # of a permutation this is the inverse
        support = ranking <= min(self._n_wanted(len(scores)), n_selectable)
        scores = np.asarray(scores, dtype=np.float64)
        return {"scores_": scores, "order_": order, "ranking_": ranking, "support_": support}

    def _warn_if_too_many(self, n_selectable: int) -> None:
        if self.n_features_to_select > n_selectable:
            warnings.warn(
                f"n_features_to_select={self.n_features_to_select} is greater than the "
                f"number of features to choose from ({n_selectable}). All of them are kept.",
                stacklevel=4,
            )

    def transform(self, X: Any) -> Any:
        """Return the selected columns of X.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d), AnnData or path
            Rows with all the features seen in `fit`. In AnnData genes are found by name, and
            an AnnData object is returned, as slicing it does.
        """
        check_is_fitted(self, "support_")
        genes, names = as_genes(X), getattr(self, "feature_names_in_", None)
        if genes is None:
            if plain_blocks(X) is None:
                with own_words(X):
                    return super().transform(X)
            return as_plain(X, names=names).X[:, self._get_support_mask()]
        support, found = self.get_support(), genes.names
        if names is not None:
            return genes.keep(column_places(found, names[support]))
        if len(found) != len(support):
            raise ValueError(f"X has {len(found)} features, {len(support)} were fitted.")
        return genes.keep(np.flatnonzero(support))

    def _get_support_mask(self) -> np.ndarray:
        check_is_fitted(self, "support_")
        return as_numpy(self.support_)

    def _name_of(self, feature: int) -> str:
        names = getattr(self, "feature_names_in_", None)
        return f"x{feature}" if names is None else str(names[feature])

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """The call that makes it, tables and long lists in words, defaults left out."""
        usual = inspect.signature(type(self)).parameters
        given = {n: _in_words(n, v) for n, v in sorted(self.get_params(deep=False).items())}
        shown = [f"{n}={v}" for n, v in given.items() if v != _in_words(n, usual[n].default)]
        return f"{type(self).__name__}({', '.join(shown)})"[:N_CHAR_MAX]

    def _html_repr(self) -> str:
        """scikit-learn's diagram, and below it what was used and chosen, to unfold."""
        diagram = super()._html_repr()
        if not hasattr(self, "support_"):
            return diagram
        known = "".join(
            f"<li>{html.escape(what)}: {html.escape(said)}</li>"
            for what, said in getattr(self, "knowledge_", {}).items()
        )
        order, scores = (np.asarray(as_numpy(v)) for v in (self.order_, self.scores_))
        chosen = order[: int(self.get_support().sum())].tolist()
        names = [html.escape(self._name_of(j)) for j in chosen]  # untrusted text
        rows = "".join(
            f"<tr><td>{rank}</td><td>{name}</td><td>{scores[j]:.4g}</td></tr>"
            for rank, (name, j) in enumerate(zip(names, chosen[:SHOWN]), start=1)
        )
        first = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
        return (
            f"{diagram}<ul>{known}</ul><details><summary>{len(chosen):,} of "
            f"{self.n_features_in_:,} features chosen: {first}</summary><table><thead><tr>"
            "<th>rank</th><th>feature</th><th>score</th></tr></thead><tbody>"
            f"{rows}</tbody></table></details>"
        )


@contextmanager
def own_words(X: Any, name: str = "X", names: Any = None) -> Iterator[None]:
    """Let errors of scikit-learn name the data they speak of, and the place of a NaN."""
    try:
        yield
    except (TypeError, ValueError) as error:
        text = re.sub(r"\bX\b", name, str(error))
        if re.match("Input X contains (NaN|inf)", str(error)):
            validation.check_all_finite(as_numpy(X), names, name)
        if "float" in text or "sequence" in text:  # numpy's words, of what is no number
            text = f"{name} must be a matrix of numbers: {text}"
        raise type(error)(text) from error


def validated(selector: Any, X: Any, name: str = "X", *, reset: bool, **options: Any) -> Any:
    """Return X as scikit-learn's `validate_data` does, also of AnnData and files."""
    plain = as_plain(X, names=None if reset else getattr(selector, "feature_names_in_", None))
    X, named = plain.X, plain.names is not None
    if named and sp.issparse(X) and not options["accept_sparse"]:
        if (size := X.shape[0] * X.shape[1] * X.dtype.itemsize) > memory_limit() // 4:
            raise ValueError(
                f"{type(selector).__name__} needs dense data, which would take "
                f"{size_text(size)}. Choose fewer genes or cells, or another selector."
            )
        X = X.toarray()
    with warnings.catch_warnings():
        if named:  # and compared already
            warnings.filterwarnings("ignore", NO_NAMES)
        with own_words(X, name, plain.names):
            X = validate_data(selector, X, reset=reset, **options)
    if named and reset:
        selector.feature_names_in_ = np.array(plain.names, dtype=object)
    return X


def row_wise(method: Callable) -> Callable:
    """Let a method that looks at one row at a time take AnnData and files, block by block."""

    @functools.wraps(method)
    def of_any(self: Any, X: Any, *args: Any, **options: Any) -> Any:
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        blocks = plain_blocks(X, names=names, needed=self.get_support())
        if blocks is None:
            return method(self, X, *args, **options)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", NO_NAMES)
            return np.concatenate([method(self, block, *args, **options) for block in blocks])

    return of_any


@dataclass(eq=False, repr=False)
class LinearSelector(RankingSelector):
    """A ranking with a linear model of class attributes: parameters of SemFS and SemFSCV."""

    n_features_to_select: Any = 50
    attributes: Any = None
    _: KW_ONLY
    alpha: float = 1.0
    gamma: float = 10.0
    penalty_scale: str = "gram"
    fit_intercept: bool = True
    class_weight: Any = "balanced"
    label_weight: float = 0.0
    target_attributes: Any = "table"
    n_new_classes: int | str = "auto"
    include: Any = None
    exclude: Any = None
    verbose: int = 0

    _supervised = _takes_sparse = True

    def _training_data(
        self, X: Any, y: Any, sample_weight: Any, X_unlabeled: Any = None, reset: bool = True
    ) -> TrainingData:
        """Validate rows in memory; finiteness shows in the moments."""
        plain = as_plain(X, y)
        y, hidden = split_labels(as_numpy(plain.y), self.attributes)
        X, classes, codes = self._check_training_data(
            replace(plain, y=y), y, ensure_all_finite=False, reset=reset
        )
        if X_unlabeled is not None:
            types = [np.float64, np.float32]
            how: Any = {"accept_sparse": "csr", "dtype": types, "reset": False}
            X_unlabeled = validated(self, X_unlabeled, "X_unlabeled", **how)
        weights = check_weights(as_numpy(sample_weight), X.shape[0])
        with own_words(plain.X, names=plain.names):
            return TrainingData.of_rows(X, codes, classes, weights, hidden, X_unlabeled)

    @property
    def attribute_names_in_(self) -> np.ndarray:
        """Names (m,) of the attributes of the table given."""
        return self.class_table_.names

    @row_wise
    def predict_attributes(self, X: Any) -> np.ndarray:
        """Predict the attributes (n, m) of rows X (n, d), in the columns of the table given.

        By a ridge regression of its own on the selected features, all classes alike.
        """
        return like(self._predictor().attributes(self._selected(X, "predict_attributes")), X)

    @row_wise
    def predict(self, X: Any, class_table: Any = None) -> np.ndarray:
        """Return the likeliest class of each row, by descriptions where no rows were seen.

        Parameters
        ----------
        X : array-like, sparse matrix, AnnData, path or `open_blocks` of shape (n, d)
            Rows; columns by name, where they have names, of which only those chosen are needed.
        class_table : like `attributes`, optional
            Classes to choose among; by default all of the fitted table, seen or to come.
        """
        Z, table = self._selected(X, "predict"), self._candidates(class_table)
        return like(table.classes[self._predictor().scores(Z, table).argmax(axis=1)], X)

    @row_wise
    def decision_function(self, X: Any, class_table: Any = None) -> np.ndarray:
        """Return log-likelihoods (n, n_classes) of the classes of each row, up to a constant.

        X and class_table are as in `predict`; columns are in the order of the table.
        """
        Z, table = self._selected(X, "decision_function"), self._candidates(class_table)
        return like(self._predictor().scores(Z, table), X)

    def _selected(self, X: Any, method: str) -> np.ndarray:
        """The selected columns (n, k) of X, in float64."""
        device.check_same_namespace(X, self, attribute="coef_", method=method)
        types = floating_dtypes(X) or [np.float64, np.float32]
        X = validated(self, X, accept_sparse="csr", dtype=types, reset=False)
        chosen = np.flatnonzero(self._get_support_mask())
        Z = as_numpy(device.take_columns(X, chosen)) if device.is_foreign(X) else X[:, chosen]
        return np.asarray(Z.toarray() if sp.issparse(Z) else Z, dtype=np.float64)

    def _predictor(self) -> ClassPredictor:
        table, means, within = self.class_table_, self.class_means_, self.within_
        selected = np.flatnonzero(self._get_support_mask())
        names = getattr(self, "feature_names_in_", None)
        same = same_space(names, self.n_features_in_, table.names, selected)
        return ClassPredictor(table, as_numpy(means), as_numpy(within), same)

    def _candidates(self, class_table: Any) -> AttributeTable:
        """The classes to choose among."""
        seen, new = self.class_table_, self.new_table_
        if class_table is None:
            if new is None:
                return seen
            labels = label_array([*seen.classes.tolist(), *new.classes.tolist()])
            return AttributeTable(np.vstack([seen.values, new.values]), labels, seen.names)
        return as_attribute_table(class_table).columns_of(seen, "class_table")

    def inverse_transform(self, X: Any) -> Any:
        """Return X (n, k) as (n, d): selected columns in their places, zeros elsewhere."""
        if floating_dtypes(X) is None:
            return super().inverse_transform(X)
        return device.spread_columns(X, self.get_support())

    def _transform(self, X: Any) -> Any:
        device.check_same_namespace(X, self, attribute="support_", method="transform")
        return super()._transform(X)

    def explain(
        self,
        X: Any = None,
        y: Any = None,
        *,
        sample_weight: Any = None,
        n_bootstraps: int = 100,
        random_state: Any = 0,
    ) -> Any:
        """Explain the chosen features, by name; needs pandas.

        Parameters
        ----------
        X, y, sample_weight : array-like, optional
            The rows of `fit`. By default those of the last `fit`, remembered by reference if
            they take up to 256 MB (not by saved or pickled selectors). Without rows only
            gains and weights are explained.
        n_bootstraps : int, default=100
            Bootstraps of the classes for the stability of the selection; 0 for none. They
            take labeled rows into account, not `target_attributes` or unlabeled rows.
        random_state : int, default=0
            Seed of the bootstraps.

        Returns
        -------
        semfs.selectors.explanation.Explanation
        """
        from semfs.selectors.explanation import explain_selection

        check_is_fitted(self)
        check_integer("n_bootstraps", n_bootstraps, 0)
        moments = getattr(self, "_evidence", None)
        if X is not None:
            moments = self._training_data(X, y, sample_weight, reset=False).moments
            moments = moments.without_empty_classes()
            found, fitted = moments.classes.tolist(), self.class_table_.classes.tolist()
            if found != fitted:
                raise ValueError(
                    f"explain needs rows of the {len(fitted)} classes that were fitted, from "
                    f"{fitted[0]!r} to {fitted[-1]!r}; found {len(found)}, from {found[0]!r} "
                    f"to {found[-1]!r}."
                )
        return explain_selection(self, moments, n_bootstraps, random_state)

    def _remember(self, moments: Moments) -> None:
        """Keep what `explain` needs, by reference, unless it is large or out of memory."""
        rows, here = moments.rows, isinstance(moments.rows, Rows)
        size = rows.nbytes if here else 8 * moments.n_features**2
        small = size <= REMEMBERED_BYTES and (here or rows is None)
        self._evidence = moments if small else None

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_evidence", None)  # the data do not travel with the selector
        return state


def stable_order(scores: np.ndarray) -> np.ndarray:
    """Return feature indices, best score first, ties by index."""
    return np.argsort(-np.asarray(scores, dtype=np.float64), kind="stable")


def constant_columns(X: Any) -> np.ndarray:
    """Return a mask (d,) of the columns of X that hold one value only."""
    top, low = X.max(axis=0), X.min(axis=0)
    if sp.issparse(X):
        top, low = top.toarray().ravel(), low.toarray().ravel()
    return np.asarray(top == low)


def _in_words(name: str, value: Any) -> str:
    """What `repr` shows of a parameter: tables and long values by their size."""
    shape = tuple(getattr(value, "shape", ()))
    if name.endswith("attributes") and not (value is None or isinstance(value, str)):
        rows = list(value.values() if isinstance(value, Mapping) else value)
        m = shape[1] if len(shape) == 2 else np.size(rows[0]) if rows else 0
        m -= hasattr(value, "get_columns")  # polars: labels first
        return f"<{shape[0] if shape else len(rows)} classes × {m} attributes>"
    if shape:
        return f"<array of shape {shape}>"
    text = repr(value)
    if len(text) > 80:
        size = f" of {len(value)}" if hasattr(value, "__len__") else ""
        return f"<{type(value).__name__}{size}>"
    return text
