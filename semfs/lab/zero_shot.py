"""Zero-shot prediction of unseen classes, with the features of any method.

Other selectors cannot predict. To compare methods by their features and not by their
classifiers, the predictor of `SemFS.predict` is used for all of them. It is fitted to the
selected features, and knows unseen classes only by their descriptions.
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
    """The results of zero-shot prediction.

    Parameters
    ----------
    unseen : Confusion
        Confusion of samples of unseen classes when only unseen classes are candidates.
    everything : Confusion
        Confusion of held-out samples of seen classes and of samples of unseen classes when all
        classes are candidates. Seen classes come first.
    is_unseen : mask of shape (C,)
        Which classes of ``everything`` are unseen.
    """

    unseen: Confusion
    everything: Confusion
    is_unseen: Mask

    @property
    def accuracy(self) -> float:
        """Mean accuracy of the unseen classes when only unseen classes are candidates."""
        return self.unseen.accuracy()

    @property
    def seen_accuracy(self) -> float:
        """The mean accuracy of the seen classes if all classes are candidates."""
        return self.everything.accuracy(~self.is_unseen)

    @property
    def unseen_accuracy(self) -> float:
        """The mean accuracy of the unseen classes if all classes are candidates."""
        return self.everything.accuracy(self.is_unseen)

    @property
    def harmonic_mean(self) -> float:
        """The harmonic mean of both accuracies if all classes are candidates."""
        total = self.seen_accuracy + self.unseen_accuracy
        return 2.0 * self.seen_accuracy * self.unseen_accuracy / total if total > 0 else 0.0

    def recalls(self) -> dict[str, dict[str, float]]:
        """Return the recalls of seen and of unseen classes if all are candidates."""
        found: dict[str, dict[str, float]] = {"seen": {}, "unseen": {}}
        tested = self.everything.n_samples > 0
        values = self.everything.recalls.tolist()
        for i, name in enumerate(self.everything.classes):
            if tested[i]:
                found["unseen" if self.is_unseen[i] else "seen"][name] = values[i]
        return found


def is_described(attributes: AttributesLike) -> bool:
    """Return whether a table holds more information than the labels alone."""
    values = AttributeTable.from_any(attributes).values
    return not np.array_equal(values, np.eye(*values.shape))


def zero_shot(split: SplitData, features: Indices, seed: int) -> ZeroShot:
    """Predict the classes of held-out seen and of unseen samples by features (k,).

    Parameters
    ----------
    split : SplitData
        A split whose table describes all classes.
    features : array of shape (k,)
    seed : int
        Seed of the held-out part of the seen samples, which is the same as in `seen_confusion`.
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
    """Return samples (n, k) with feature names.

    SemFS needs names to recognize features that are attributes, as in text embeddings.
    """
    pandas = import_optional("pandas", "data", what="Zero-shot prediction")
    return pandas.DataFrame(dense(X), columns=split.names_of(features))


def _codes(labels: LabelsLike, code_of: Mapping[Label, int]) -> Indices:
    """Return the codes (n,) of labels."""
    return np.array([code_of[label] for label in np.asarray(labels).tolist()], dtype=np.intp)
