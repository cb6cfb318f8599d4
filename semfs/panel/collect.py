"""Collects the facts about a panel from a fitted selector and the samples of its fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from semfs._typing import DataLike, Float64, LabelsLike
from semfs.io.anndata import as_genes
from semfs.io.reader import Reader
from semfs.panel.confusion import confused_shares
from semfs.panel.detection import count_above
from semfs.panel.gene_ids import gene_ids
from semfs.panel.report import PanelReport
from semfs.panel.words import CELLS, GENERAL, Words
from semfs.selectors.explanation import Explanation
from semfs.selectors.inputs.kind import Kind, classify
from semfs.selectors.linear import LinearSelector
from semfs.selectors.rules.feature_values import price_list
from semfs.system import import_optional


def panel_report(
    selector: LinearSelector,
    X: DataLike = None,
    y: LabelsLike | str | None = None,
    *,
    explanation: Explanation | None = None,
    n_bootstraps: int = 100,
    random_state: int = 0,
    words: Words | None = None,
    settings: Mapping[str, object] | None = None,
    command: str = "",
) -> PanelReport:
    """Make a report on the features that a fitted selector selected.

    Parameters
    ----------
    selector : SemFS or SemFSCV
        Fitted.
    X : array-like, sparse matrix, AnnData, path or `open_blocks` of shape (n, d), optional
        The samples of `fit`. Omit them if the selector still has them, as after a fit to small
        data.
    y : array-like of shape (n,) or str, optional
        Their labels, as in `fit`.
    explanation : Explanation, optional
        The result of ``selector.explain(…)``, if it was computed already.
    n_bootstraps, random_state : int
        As in `SemFS.explain`.
    words : Words, optional
        What features, samples and classes are called on the page. For an AnnData object, the
        default is genes, cells and cell types.
    settings, command : mapping and str, optional
        What the page shows about repeating the selection. By default the parameters of the
        selector.

    Returns
    -------
    PanelReport
        The report. Its method ``write`` writes the page and the list for the vendor.

    Examples
    --------
    >>> from semfs import SemFS
    >>> from semfs.datasets import load_sample
    >>> lung = load_sample()
    >>> X, y, *_ = lung.split()
    >>> panel = panel_report(SemFS(3, lung.attributes).fit(X, y), n_bootstraps=0)
    >>> int(panel.explanation.coverage["basophil"]), panel.shares.shape
    (0, (3, 12))
    >>> panel.table().columns.tolist()
    ['feature', 'reason', 'frequency', 'substitutes']
    """
    check_is_fitted(selector)
    if explanation is None:
        explanation = selector.explain(
            X, y, n_bootstraps=n_bootstraps, random_state=random_state
        )
    if words is None:
        words = CELLS if as_genes(X) is not None or _of_cells(X) else GENERAL
    of_cells = words == CELLS
    thresholds = _thresholds(selector, len(explanation.means), of_cells)
    counted = count_above(selector, X, y, thresholds)
    shares = None
    n_samples = None
    class_sizes = None
    confused = None
    if counted is not None:
        pandas = import_optional("pandas", "data", what="A panel")
        n_samples = int(counted.class_sizes.sum())
        class_sizes = pandas.Series(counted.class_sizes, explanation.classes.columns)
        names = explanation.features.index
        columns = explanation.classes.columns
        shares = pandas.DataFrame(counted.shares().T, names, columns)
        both = confused_shares(selector, X, y, counted)
        confused = pandas.DataFrame(both, columns, columns)
    if settings is None:
        settings = _settings_of(selector)
    return PanelReport(
        explanation=explanation,
        n_features=len(selector.get_support()),
        # Constant features, and those that rules keep out, have the score -inf.
        n_selectable=int(np.isfinite(selector._get_fitted().scores).sum()),
        n_samples=n_samples,
        class_sizes=class_sizes,
        shares=shares,
        confused=confused,
        threshold="0" if of_cells else "the mean over classes",
        rules=list(selector.rules_),
        knowledge=dict(selector.knowledge_),
        settings=settings,
        command=command,
        words=words,
        prices=_prices_of(selector, len(explanation.means)),
        ids=gene_ids(_reader_of(X), explanation.features.index, words.feature),
        remarks=_remarks_on(selector),
        worth=selector._get_fitted().findings.worth_of_groups(),
    )


def _of_cells(X: DataLike) -> bool:
    """Return whether an opened file holds single cells."""
    source: Any = X
    return classify(X) is Kind.SOURCE and source.reader.of_cells


def _reader_of(X: DataLike) -> Reader | None:
    """Return the reader of AnnData or an opened file; None for other data."""
    genes = as_genes(X)
    if genes is not None:
        return genes.reader()
    source: Any = X
    return source.reader if classify(X) is Kind.SOURCE else None


def _thresholds(selector: LinearSelector, n_selected: int, of_cells: bool) -> Float64:
    """Return the values (k,) above which samples count, by selected feature, best first."""
    # A count above 0 means that a gene was detected. Measurements have no such zero,
    # so their share is taken above the average of the classes.
    if of_cells:
        return np.zeros(n_selected)
    selected = np.asarray(selector.order_)[:n_selected]
    # Class means are stored by ascending feature: these are their places, best first.
    entered = np.searchsorted(np.sort(selected), selected)
    means: Float64 = selector._get_fitted().levels
    return means.mean(axis=0)[entered]


def _remarks_on(selector: LinearSelector) -> dict[str, str]:
    """Return remarks on features by name, such as those that are included against a rule."""
    remarks = selector._get_fitted().remarks()
    return {selector._name_of(feature): text for feature, text in remarks.items()}


def _prices_of(selector: LinearSelector, n_selected: int) -> dict[str, list[Any]]:
    """Return the groups and costs of the selected features, best first."""
    # those of a SemFSCV are parameters of the SemFS that it chose
    params: Any = getattr(selector, "best_estimator_", selector)
    names = getattr(selector, "feature_names_in_", None)
    selected = np.asarray(selector.order_)[:n_selected].tolist()
    d = len(selector.get_support())
    groups = getattr(params, "groups", None)
    costs = getattr(params, "costs", None)
    return price_list(groups, costs, d, names, selected)


def _settings_of(selector: LinearSelector) -> dict[str, object]:
    """Return the parameters of a selector, with a table of descriptions as its size."""
    settings: dict[str, object] = {}
    for name, value in selector.get_params(deep=False).items():
        if value is None:
            continue
        # An array or a frame would fill the page.
        shape = getattr(value, "shape", None)
        settings[name] = value if shape is None else f"table of shape {shape}"
    return settings
