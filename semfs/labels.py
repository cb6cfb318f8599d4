"""Labels of samples: the one place that encodes them, and says which mean "no label"."""

from __future__ import annotations

import csv
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import column_or_1d

from semfs._typing import Indices, Label, LabelsLike
from semfs.feature_files import split_names
from semfs.validation import ParameterWarning, did_you_mean, listed, warn_user

#: Code of a sample without a label, and the label by which scikit-learn marks such samples.
UNLABELED = -1
#: Code of a sample that must not be used at all.
LEFT_OUT = -2

#: Classes with fewer samples than this are named in messages: little is known of them. spapros,
#: too, names small types.
FEW_SAMPLES = 5

#: An array of labels (C,) or (n,): of numbers, of text, or of objects.
LabelArray = npt.NDArray[Any]
#: Codes (n,) in four bytes each: a million samples take four megabytes.
Codes = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels of n samples: distinct classes, and for each sample its place among them.

    Examples
    --------
    >>> labels = Labels.of(["cat", None, "ant", "cat"])
    >>> labels.classes, labels.codes.tolist()
    (['cat', 'ant'], [0, -1, 1, 0])
    >>> labels.sorted().codes.tolist()
    [1, -1, 0, 1]
    """

    classes: list[Label]  # distinct labels
    codes: Codes  # (n,) place of the label among the classes, UNLABELED or LEFT_OUT

    # ---- making ----------------------------------------------------------------------

    @classmethod
    def of(cls, values: Any) -> Labels:
        """Return the labels of a 1-d array, list, or pandas, polars or arrow column.

        Nothing is refused but what is not 1-d; missing values are UNLABELED.
        """
        if isinstance(values, Labels):
            return values
        if hasattr(values, "categories") and hasattr(values, "codes"):  # pandas.Categorical
            codes = np.asarray(values.codes, dtype=np.int32)
            return cls(list(values.categories), codes)._renamed(list(values.categories))
        if hasattr(values, "to_numpy"):
            values = values.to_numpy()
        if not isinstance(values, Iterable) or getattr(values, "ndim", 1) != 1:
            raise TypeError(f"y must hold one label per row, got {type(values).__name__}.")
        if isinstance(values, np.ndarray) and values.dtype.kind not in "OV":
            return cls._of_array(values)
        return cls._of_objects(values)

    @classmethod
    def from_target(
        cls,
        y: LabelsLike | None,
        n_samples: int | None = None,
        described: Iterable[Label] | None = None,
    ) -> Labels:
        """Return the labels of the target y (n,) of a fit, classes sorted.

        Labels may be of any one hashable type. Missing labels are UNLABELED, and so are marks
        (`mark_unlabeled`) if it is known which classes are ``described``. A mix of numbers and
        text is refused because it is nearly always a reading error; other refusals are those
        that scikit-learn's estimator checks ask for.
        """
        labels = cls.of(_label_vector(y))
        if described is not None:
            labels = labels.mark_unlabeled(described)
        if n_samples is not None:
            labels.check_length(n_samples)
        return labels.checked()

    @classmethod
    def _of_array(cls, values: LabelArray) -> Labels:
        """Labels of an array of numbers, text or times."""
        classes, codes = np.unique(values, return_inverse=True)
        if classes.dtype.kind in "Mm":
            names = list(classes)  # as Python's own, times in nanoseconds would be integers
        else:
            names = classes.tolist()
        return cls(names, codes.reshape(-1).astype(np.int32))._renamed(names)

    @classmethod
    def _of_objects(cls, values: Iterable[Any]) -> Labels:
        """Labels of any hashable kind, classes in the order of their first sample."""
        position: dict[Label, int] = {}
        codes = []
        for value in values:
            label = value.item() if isinstance(value, np.generic) else value
            missing = is_missing(label)
            codes.append(UNLABELED if missing else position.setdefault(label, len(position)))
        return cls(list(position), np.array(codes, dtype=np.int32))

    # ---- reading ---------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: slice) -> Labels:
        return Labels(self.classes, self.codes[rows])

    @property
    def n_unlabeled(self) -> int:
        """Number of samples without a label."""
        return int((self.codes == UNLABELED).sum())

    def check_length(self, n_samples: int) -> None:
        """Raise unless there is one label for each of n samples."""
        if len(self) != n_samples:
            raise ValueError(
                f"X has {n_samples} rows but y has {len(self)} labels: inconsistent numbers "
                "of samples. Pass one label per row."
            )

    def check_complete(self) -> None:
        """Raise unless every sample has a label."""
        if self.n_unlabeled:  # check_supervised_y_no_nan looks for these words
            raise ValueError(
                "Input y contains NaN or None: missing labels. Drop or label those samples."
            )

    def array(self) -> LabelArray:
        """Return the label (n,) of each sample, None where there is none."""
        if (self.codes >= 0).all():
            return self.class_array()[self.codes]
        names = label_array([*self.classes, None])
        return names[np.maximum(self.codes, UNLABELED)]

    def class_array(self) -> LabelArray:
        """Return the classes as an array (C,)."""
        return label_array(self.classes)

    # ---- changing --------------------------------------------------------------------

    def checked(self) -> Labels:
        """Return the labels with sorted classes; raise if these cannot be class labels."""
        _check_classes(self.classes)
        return self.sorted()

    def used(self) -> Labels:
        """Return the labels of the samples that have one."""
        return Labels(self.classes, self.codes[self.codes >= 0])

    def sorted(self) -> Labels:
        """Return the labels with sorted classes; classes without an order stay as they are."""
        try:
            order = sorted(range(len(self.classes)), key=self.classes.__getitem__)  # type: ignore[arg-type]
        except TypeError:
            return self
        if any(isinstance(label, frozenset) for label in self.classes):
            # `<` of sets is inclusion, which is no total order
            return self
        new_place = np.empty(len(order) + 2, dtype=np.int32)
        new_place[order] = np.arange(len(order))
        new_place[-2:] = (LEFT_OUT, UNLABELED)  # codes -2 and -1 look up the last two
        return Labels([self.classes[i] for i in order], new_place[self.codes])

    def strip_blank(self) -> Labels:
        """Return the labels without blanks around text; blank text is no label."""
        names: list[Label] = []
        for label in self.classes:
            names.append((label.strip() or None) if isinstance(label, str) else label)
        return self._renamed(names)

    def as_int(self) -> Labels:
        """Return the labels as integers if all are written as such (7, but not 007)."""
        integer = re.compile("0|-?[1-9][0-9]*")
        numbers: list[Label] = []
        for label in self.classes:
            if not isinstance(label, str) or not integer.fullmatch(label):
                return self
            numbers.append(int(label))
        return self._renamed(numbers)

    def leave_out(self, classes: Iterable[Label]) -> Labels:
        """Return the labels with the samples of these classes LEFT_OUT; text may name them."""
        names = {_text(label) for label in classes}
        unknown = names - {_text(label) for label in self.classes}
        if unknown:
            hint = did_you_mean(min(unknown), self.classes) or "."
            raise ValueError(f"unseen class {min(unknown)!r} does not occur in the data{hint}")
        places = [i for i, label in enumerate(self.classes) if _text(label) in names]
        codes = np.where(np.isin(self.codes, places), LEFT_OUT, self.codes)
        return Labels(self.classes, codes.astype(np.int32))._renamed(self.classes)

    def mark_unlabeled(self, described: Iterable[Label] = ()) -> Labels:
        """Return the labels with none where they are -1, unless -1 is a described class.

        This is the rule of the whole package: missing values, and -1 unless the attribute
        table describes a class -1, mark samples without a label.

        >>> Labels.of([3, -1]).mark_unlabeled().codes.tolist()
        [0, -1]
        >>> Labels.of([3, -1]).mark_unlabeled(described=[3, -1]).codes.tolist()
        [0, 1]
        """
        if UNLABELED not in self.classes or UNLABELED in list(described):
            return self
        return self.mask_label(UNLABELED)

    def without_unlabeled(self) -> Labels:
        """Return the labels with the unlabeled samples LEFT_OUT: their rows stay."""
        codes = np.where(self.codes == UNLABELED, LEFT_OUT, self.codes)
        return Labels(self.classes, codes.astype(np.int32))

    def mask_label(self, mark: Label) -> Labels:
        """Return the labels with none where they equal ``mark``."""
        return self._renamed([None if label == mark else label for label in self.classes])

    def align_to(self, known: Iterable[Label]) -> Labels:
        """Return the labels in the type of a table's: 3, 3.0 and "3" are the same class.

        They stay as they are if that would leave a class without a counterpart.
        """
        known = list(known)
        if set(self.classes) <= set(known):
            return self
        by_text = {_text(label): label for label in known}
        names = [by_text.get(_text(label), label) for label in self.classes]
        if not set(names) <= set(known):
            return self
        return self._renamed(names)

    def _renamed(self, names: Sequence[Label]) -> Labels:
        """Return the same samples under new names of the classes.

        Classes of equal names are joined, unused ones dropped; a missing name is no label.
        """
        is_used = np.bincount(self.codes[self.codes >= 0], minlength=len(names)) > 0
        position: dict[Label, int] = {}
        new_code = []
        for name, use in zip(names, is_used):
            keep = use and not is_missing(name)
            new_code.append(position.setdefault(name, len(position)) if keep else UNLABELED)
        # codes -2 and -1 look up the last two entries
        lookup = np.array([*new_code, LEFT_OUT, UNLABELED], dtype=np.int32)
        return Labels(list(position), lookup[self.codes])


def unlabeled_note(labels: Labels, used: bool) -> str:
    """Return what happens to samples without a label, and how to get the other choice."""
    text = f": {labels.n_unlabeled} of {len(labels)} samples have no label. "
    if used:
        return text + (
            "They are used as examples of unseen classes: features are also "
            'selected to separate their clusters. With unlabeled="drop", '
            "they are left out."
        )
    return text + (
        'They are left out. With unlabeled="use", they are treated as '
        "examples of unseen classes, and features are also selected to "
        "separate their clusters."
    )


def similar_labels(classes: Iterable[Label]) -> str:
    """Return a sentence about classes that differ only in case or spaces, "" without such.

    >>> similar_labels(["T cell", "t cell", "B cell"]).partition(". ")[0]
    "these labels differ only in case or spaces: 'T cell' = 't cell'"
    """
    alike: dict[str, list[str]] = {}
    for label in classes:
        if isinstance(label, str):
            key = "".join(label.casefold().split())
            alike.setdefault(key, []).append(repr(label))
    groups = [" = ".join(group) for group in alike.values() if len(group) > 1]
    if not groups:
        return ""
    return (
        f"these labels differ only in case or spaces: {listed(groups)}. "
        "They are used as different classes. If they are the same class, "
        "rename one of them."
    )


def warn_of_similar_labels(classes: Iterable[Label]) -> None:
    """Warn of classes whose labels differ only in case or spaces."""
    sentence = similar_labels(classes)
    if sentence:
        warn_user(ParameterWarning("y", f": {sentence}"))


def encode_labels(
    y: LabelsLike | None, *, n_samples: int | None = None
) -> tuple[LabelArray, Indices]:
    """Return the sorted class labels (C,) and the code (n,) of each sample's class.

    As `Labels.from_target`, but every sample needs a label.

    Examples
    --------
    >>> encode_labels(["cat", "ant", "cat"])
    (array(['ant', 'cat'], dtype='<U3'), array([1, 0, 1]))
    """
    labels = Labels.from_target(y, n_samples)
    labels.check_complete()
    return labels.class_array(), labels.codes.astype(np.intp)


def label_array(labels: Sequence[Any]) -> LabelArray:
    """Return labels as a 1-d array of one of numpy's types, of objects if there is none."""
    types = {type(label) for label in labels}
    if len(types) == 1:
        only = types.pop()
        if only in (str, bool, float, np.datetime64, np.timedelta64):
            return np.array(labels)
        if only is int:
            found = np.array(labels)
            if found.dtype.kind in "iu":  # none is beyond 64 bits
                return found
    if types == {int, float} and all(abs(label) <= 2**53 for label in labels):
        return np.array(labels, dtype=np.float64)
    return object_array(list(labels))


def object_array(items: list[Any]) -> LabelArray:
    """Return items as they are, tuples and lists too, in a 1-d array of objects."""
    out = np.empty(len(items), dtype=object)
    for i, item in enumerate(items):  # `out[:] = items` would look into lists and arrays
        out[i] = item
    return out


def count_missing_labels(y: LabelsLike) -> int:
    """Return how many labels of the target y (n,) are missing; -1 is a label here."""
    with warnings.catch_warnings():
        # who passes a column has been told so when its labels were read
        warnings.simplefilter("ignore")
        return Labels.of(_label_vector(y)).n_unlabeled


def is_missing(label: Any) -> bool:
    """Return whether this stands for no label: None, NaN, pandas' NA and NaT."""
    if label is None or type(label).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(label, (np.datetime64, np.timedelta64)):
        return bool(np.isnat(label))
    return isinstance(label, (float, np.floating)) and label != label


def classes_in(texts: Iterable[str], classes: Iterable[Label]) -> list[Label]:
    """Return the classes that texts name: each is one class, or several as in a line of CSV."""
    known = {_text(label): label for label in classes}
    words: list[str] = []
    for text in texts:
        line = next(csv.reader(text.splitlines(), skipinitialspace=True), [])
        quoted = [word.strip() for word in line]  # "a, b",c as in a CSV file
        # Quoted names first: a name that contains a comma stays whole.
        parts = quoted if known.keys() >= set(quoted) else split_names(text, known)
        words += [text] if known.keys().isdisjoint(parts) else parts
    return [known.get(word, word) for word in words]


def _text(label: Label) -> str:
    """Return how a label is written; 3.0 as 3."""
    if isinstance(label, float) and label.is_integer():
        return str(int(label))
    return str(label)


def _label_vector(y: Any) -> LabelArray:
    """Return the target as a 1-d array that keeps the types of its labels."""
    if y is None:  # check_requires_y_none looks for these words
        raise ValueError("This selector requires y to be passed, but the target y is None.")
    if hasattr(y, "to_numpy"):
        y = y.to_numpy()
    if isinstance(y, (list, tuple)):
        types = {type(label) for label in y}
        if types & {tuple, frozenset}:
            return object_array(list(y))  # labels that numpy would take for rows
        if isinstance(y, list) and (len(types) > 1 or types == {int}):
            # np.asarray would turn [1, "a"] into text and [2**63, -5] into floats
            y = y if list in types else label_array(y)
    # check_supervised_y_2d: a column is taken as a vector, with a DataConversionWarning
    y = column_or_1d(y, warn=True)
    if y.shape[0] == 0:  # check_estimators_empty_data_messages
        raise ValueError("y is empty. Pass one class label per row of X.")
    return y


def _check_classes(classes: list[Label]) -> None:
    """Refuse labels of several types, infinite ones, and numbers that are measurements."""
    types = set()
    for label in classes:
        types.add("number" if isinstance(label, (int, float)) else type(label).__name__)
    if len(types) > 1:
        raise ValueError(
            f"y mixes labels of different types ({', '.join(sorted(types))}). "
            "Convert them to one type, for example y.astype(str)."
        )
    for label in classes:
        if not isinstance(label, float):
            continue
        if np.isinf(label):  # check_supervised_y_no_nan
            raise ValueError("Input y contains NaN or infinity. Drop the unlabeled samples.")
        if not label.is_integer():  # check_classifiers_regression_target
            raise ValueError(
                "Unknown label type: continuous. y must hold class labels, found numbers such "
                f"as {label}."
            )
