"""Zero-shot prediction with the features of any method: which unseen class is a sample of?

Selectors of other kinds only select. So that methods are compared by their features and not by
their classifiers, one predictor serves all: that of `SemFS.predict`, fitted to the selected
features alone. Unseen classes are known to it by their descriptions only.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semfs._typing import AttributesLike, Indices, Label, LabelsLike, Mask, Matrix
from semfs.attributes import AttributeTable
from semfs.lab.confusion import Confusion, dense, held_out_samples
from semfs.lab.splits import SplitData
from semfs.labels import encode_labels
from semfs.selectors.semfs import SemFS
from semfs.system import import_optional

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class ZeroShot:
    """What class samples were predicted to be of.

    Parameters
    ----------
    unseen : Confusion
        Of samples of unseen classes, when unseen classes compete among themselves.
    everything : Confusion
        Of held-out samples of the seen classes and of those of the unseen ones, when all
        classes compete; seen classes come first.
    is_unseen : mask of shape (C,)
        Which classes of ``everything`` are unseen.
    """

    unseen: Confusion
    everything: Confusion
    is_unseen: Mask

    @property
    def accuracy(self) -> float:
        """Zero-shot accuracy: mean over the unseen classes, which compete among themselves."""
        return self.unseen.accuracy()

    @property
    def seen_accuracy(self) -> float:
        """Mean over the seen classes when all classes compete."""
        return self.everything.accuracy(~self.is_unseen)

    @property
    def unseen_accuracy(self) -> float:
        """Mean over the unseen classes when all classes compete."""
        return self.everything.accuracy(self.is_unseen)

    @property
    def harmonic_mean(self) -> float:
        """Harmonic mean of both accuracies when all classes compete."""
        total = self.seen_accuracy + self.unseen_accuracy
        return 2.0 * self.seen_accuracy * self.unseen_accuracy / total if total > 0 else 0.0

    def recalls(self) -> dict[str, dict[str, float]]:
        """Return the recall of each class when all compete, of seen and of unseen classes."""
        found: dict[str, dict[str, float]] = {"seen": {}, "unseen": {}}
        tested = self.everything.n_samples > 0
        values = self.everything.recalls.tolist()
        for i, name in enumerate(self.everything.classes):
            if tested[i]:
                found["unseen" if self.is_unseen[i] else "seen"][name] = values[i]
        return found


def is_described(attributes: AttributesLike) -> bool:
    """Whether a table says more than the labels, which cannot describe unseen classes."""
    values = AttributeTable.from_any(attributes).values
    return not np.array_equal(values, np.eye(*values.shape))


def zero_shot(split: SplitData, features: Indices, seed: int) -> ZeroShot:
    """Predict the classes of held-out seen and of unseen samples by features (k,).

    Parameters
    ----------
    split : SplitData
        Its table describes all classes.
    features : array of shape (k,)
    seed : int
        Decides which share of the seen samples is held out; those of `seen_confusion`.
    """
    seen, codes = encode_labels(split.y)
    unseen, unseen_codes = encode_labels(split.y_unseen)
    held_out = held_out_samples(codes, split.seed(seed))
    table = AttributeTable.from_any(split.attributes)
    predictor = SemFS(
        len(features),
        attributes=table.rows_of(seen),
        target_attributes=None,  # the features are given, there is nothing to select for
        max_correlation=None,  # also features that are nearly alike are kept
    )
    Z = _named(split, split.X[:, features], features)
    Z_unseen = _named(split, split.X_unseen[:, features], features)
    labels = [*seen.tolist(), *unseen.tolist()]
    code_of = {label: code for code, label in enumerate(labels)}
    everything = table.rows_of(labels)
    with warnings.catch_warnings():
        # Features or attributes that are constant in a split.
        warnings.simplefilter("ignore", UserWarning)
        predictor.fit(Z[~held_out], split.y[~held_out])
        among_unseen = predictor.predict(Z_unseen, table.rows_of(unseen))
        found = _codes(predictor.predict(Z_unseen, everything), code_of)
        found_seen = np.zeros(0, dtype=np.intp)
        if held_out.any():
            found_seen = _codes(predictor.predict(Z[held_out], everything), code_of)
    truth = np.concatenate([codes[held_out], unseen_codes + len(seen)])
    return ZeroShot(
        Confusion.of_codes(
            unseen.tolist(), unseen_codes, _codes(among_unseen, code_of) - len(seen)
        ),
        Confusion.of_codes(labels, truth, np.concatenate([found_seen, found])),
        np.arange(len(labels)) >= len(seen),
    )


def _named(split: SplitData, X: Matrix, features: Indices) -> pd.DataFrame:
    """Samples (n, k) with the names of their features.

    By names SemFS knows whether features are attributes, as in embeddings of texts.
    """
    pandas = import_optional("pandas", "data", what="Zero-shot prediction")
    return pandas.DataFrame(dense(X), columns=split.names_of(features))


def _codes(labels: LabelsLike, code_of: Mapping[Label, int]) -> Indices:
    """The codes (n,) of labels."""
    return np.array([code_of[label] for label in np.asarray(labels).tolist()], dtype=np.intp)
