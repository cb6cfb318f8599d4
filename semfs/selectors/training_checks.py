"""Checks of training data, with errors and warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from semfs._typing import AttributesLike, Float64, Floats, Indices, Mask, Matrix
from semfs.attributes import AttributeTable, constant_attributes
from semfs.feature_names import feature_name
from semfs.method.moments import Moments
from semfs.selectors.parameters import MethodParameters
from semfs.validation import ParameterError, ParameterWarning, listed, warn_user

#: Share of the total variance beyond which a few features are named: their unit may differ.
DOMINANT_VARIANCE = 0.95
#: Features of two units, if so many have standard deviations that are this many times those of
#: the others, without any between. Genes and embeddings have no such gap.
UNIT_RATIO = 5.0
FEWEST_OF_A_UNIT = 4
FEWEST_SHARE_OF_A_UNIT = 0.05
FEWEST_FEATURES = 20
#: With fewer samples, a feature may have the mean and variance of row numbers by chance.
FEWEST_ROW_NUMBERS = 30
#: If more features look like row numbers, they are ranks.
MOST_ROW_NUMBERS = 3
#: What to do about columns that measure nothing.
LEAVE_OUT = "Leave such a column out of X (on the command line, --drop NAME)."
#: Share of different values in a column of serial numbers or times in order.
NEARLY_DISTINCT = 0.95
#: Classes, and samples of each, from which a number per class is no chance.
FEWEST_CODED = 3
SAMPLES_PER_CODE = 5
#: A table with fewer rows for each seen class is taken as a table of classes.
MANY_ROWS = 2
#: At most so many features are named, out of at least so many times their number: of few
#: features it is nothing special that some have most of the variance.
MOST_DOMINANT = 3
FEATURES_PER_DOMINANT = 5


def check_two_classes(moments: Moments) -> None:
    """Raise unless there are samples of at least two classes."""
    if len(moments.classes) < 2:
        only = moments.classes.tolist()[0]
        raise ValueError(
            f"y has only one class ({only!r}). Pass samples of at least two classes."
        )


def check_one_row_per_class(attributes: AttributesLike, moments: Moments) -> None:
    """Raise or warn if a table without labels does not seem to have one row per class.

    Row r of an array describes the class with label r. If an array has one row per sample, or
    per attribute, it may have enough rows, but classes would get wrong descriptions.
    """
    # The keys of a mapping were written as labels.
    if isinstance(attributes, Mapping):
        return
    table = AttributeTable.from_any(attributes)
    n_rows, n_attributes = table.values.shape
    n_classes = len(moments.classes)
    labels = moments.classes.tolist()
    if table.classes.tolist() != list(range(n_rows)) or n_rows < MANY_ROWS * n_classes:
        return
    if n_rows == moments.counts.sum():
        n_different = len(np.unique(table.values, axis=0))
        message = f"has {n_rows} rows, as many as there are samples. "
        if n_different <= n_classes:
            message += (
                f"Only {n_different} of these rows differ. One row per "
                "class is expected, so pass the table itself, not one "
                "row for each sample."
            )
            raise ParameterError("attributes", message)
        message += "One row per class is expected: row r belongs to the integer label r."
        warn_user(ParameterWarning("attributes", message))
    elif n_rows > n_attributes > max(labels):
        message = (
            f"has {n_rows} rows and {n_attributes} columns, but the "
            f"largest label in y is {max(labels)}. If the rows of the "
            "table are attributes and its columns are classes, transpose "
            "the table: row r must describe the class with the integer "
            "label r."
        )
        warn_user(ParameterWarning("attributes", message))


def warn_of_constant_attributes(table: AttributeTable) -> None:
    """Warn if attributes are the same for all seen classes.

    In a table of yes, partly and no (1, 0.5, 0), many attributes concern unseen classes only.
    For such tables, warn only if they are more than half of the attributes.
    """
    names = constant_attributes(table)
    is_yes_or_no = np.isin(table.values, (0.0, 0.5, 1.0)).all()
    usual = len(table.names) / 2 if is_yes_or_no else 0
    if len(names) > usual:
        shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
        warn_user(
            f"{len(names)} of {len(table.names)} attributes are the same "
            f"for all seen classes and have no effect: {shown}."
        )


def classes_alike(params: MethodParameters, table: AttributeTable) -> str:
    """Return a sentence for ``knowledge_`` on seen classes with the same attributes, or "".

    Only their labels can separate them. If labels are not used, warn instead.
    """
    groups: dict[bytes, list[str]] = {}
    # -0.0 is 0.0
    for label, values in zip(table.classes.tolist(), table.values + 0.0):
        groups.setdefault(values.tobytes(), []).append(str(label))
    alike = [" = ".join(group) for group in groups.values() if len(group) > 1]
    if not alike:
        return ""
    if params.label_weight:
        return f"{listed(alike)}: separated only by their labels"
    message = (
        f": some classes have the same description ({listed(alike)}), so "
        "features are not selected to separate them. Describe them "
        "differently, or use label_weight=1."
    )
    warn_user(ParameterWarning("attributes", message))
    return ""


def warn_of_dominant_features(
    variances: Float64,
    names: Sequence[str] | None,
) -> None:
    """Warn if a few features together have nearly all of the variance (d,)."""
    total = max(float(variances.sum()), np.finfo(float).tiny)
    shares = variances / total
    largest = np.argsort(-shares, kind="stable")[:MOST_DOMINANT]
    reached = np.cumsum(shares[largest])
    if reached[-1] <= DOMINANT_VARIANCE:
        _warn_of_units(variances)
        return
    # The fewest features that exceed the share, and among how many that is remarkable.
    n = 1 + int(np.argmax(reached > DOMINANT_VARIANCE))
    n_varying = np.count_nonzero(shares)
    if n_varying < (3 if n == 1 else FEATURES_PER_DOMINANT * n):
        return
    found = [feature_name(int(j), names) for j in largest[:n]]
    if n == 1:
        text = f"{found[0]} has {reached[0]:.0%} of the variance of all features"
        remedy = "Exclude this feature if it is not a measurement"
    else:
        several = f"{', '.join(found[:-1])} and {found[-1]}"
        share = f"{reached[n - 1]:.0%}"
        text = f"{several} together have {share} of the variance of all features"
        remedy = "Exclude the features that are not measurements"
    warn_user(
        f"{text} and will dominate the selection. {remedy}; scale the "
        "features to unit variance if their units differ "
        "(StandardScaler, or --scale on the command line)."
    )


def _warn_of_units(variances: Float64) -> None:
    """Warn if many features have nearly all variance, by their unit."""
    varying = np.sort(variances[variances > 0])
    n = len(varying)
    if n < FEWEST_FEATURES:
        return
    # A gap is only looked for where enough features are on both sides.
    margin = max(FEWEST_OF_A_UNIT, int(np.ceil(FEWEST_SHARE_OF_A_UNIT * n)))
    below = varying[margin - 1 : n - margin]
    above = varying[margin : n - margin + 1]
    ratios = np.sqrt(above / below)
    # The number of features below each gap, for gaps that are wide enough.
    n_below = margin + np.flatnonzero(ratios >= UNIT_RATIO)
    total = varying.sum()
    shares = np.array([varying[i:].sum() / total for i in n_below])
    found = n_below[shares > DOMINANT_VARIANCE]
    if not len(found):
        return
    # The fewest features with nearly all of the variance.
    first = int(found[-1])
    share = varying[first:].sum() / total
    ratio = np.sqrt(varying[first] / varying[first - 1])
    warn_user(
        f"{n - first} of {n} features have {share:.0%} of the variance of "
        "all features. Their standard deviations are at least "
        f"{ratio:.0f} times those of the others, so their units may "
        "decide the selection; scale the features to unit variance if "
        "their units differ (StandardScaler, or --scale on the command line)."
    )


def warn_of_row_numbers(
    moments: Moments,
    allowed: Mask,
    names: Sequence[str] | None,
) -> None:
    """Warn of features with the mean and variance of the numbers of the samples.

    Only those that may be selected, a mask ``allowed`` (d,).
    """
    n = float(moments.counts.sum())
    if n < FEWEST_ROW_NUMBERS:
        return
    rtol = 100 * moments.eps
    tol = rtol * n
    means = moments.counts @ moments.means / n
    from_zero = np.abs(means - (n - 1) / 2) < tol
    from_one = np.abs(means - (n + 1) / 2) < tol
    serial_scatter = n * (n * n - 1) / 12
    is_serial = np.isclose(moments.scatter_diag, serial_scatter, rtol=rtol)
    found = np.flatnonzero((from_zero | from_one) & is_serial & allowed)
    if 0 < len(found) <= MOST_ROW_NUMBERS:
        shown = listed([feature_name(int(j), names) for j in found])
        warn_user(
            f"{shown}: the values seem to be row numbers, which are not "
            "measurements. Exclude such a column."
        )


def warn_of_unmeasured(
    moments: Moments, X: Matrix | None, selected: Indices, names: Sequence[str] | None
) -> None:
    """Warn of selected features that look like serial numbers, clocks or the label itself.

    ``X`` (n, d) are the labeled samples in their order, None beyond memory. Only features with
    names are checked: the columns of a table, which may hold anything.
    """
    if names is None or moments.counts.sum() < FEWEST_ROW_NUMBERS:
        return
    codes = selected[_are_class_codes(moments)[selected]]
    if len(codes):
        shown = listed([feature_name(j, names) for j in codes.tolist()])
        warn_user(
            f"{shown}: constant within every class and different in each "
            "class, like the label itself written as a number. New "
            f"samples have no such number. {LEAVE_OUT}"
        )
    if isinstance(X, np.ndarray):
        warn_of_serial(X[:, selected], [names[j] for j in selected.tolist()])


def warn_of_serial(X: Floats, names: Sequence[str]) -> None:
    """Warn of columns of X (n, k) that look like serial numbers or times.

    Rows are in the order of the data.
    """
    columns = [j for j in range(X.shape[1]) if looks_serial(X[:, j])]
    # `warn_of_row_numbers` has named these.
    found = [names[j] for j in columns if not _are_row_numbers(X[:, j])]
    if 0 < len(columns) <= MOST_ROW_NUMBERS and found:
        warn_user(
            f"{listed(found)}: rises or falls steadily over the samples, "
            "like a serial number or a clock, and was selected only "
            f"because the samples are sorted in some order. {LEAVE_OUT}"
        )


def _are_row_numbers(values: Floats) -> bool:
    """Return whether values (n,) are the numbers from 0 or 1 on, in any order."""
    ascending = np.sort(values)
    return np.array_equal(ascending - min(ascending[0], 1.0), np.arange(len(values)))


def _are_class_codes(moments: Moments) -> Mask:
    """Return which features (d,) have one value in each class, and another in each."""
    counts = moments.counts
    n_classes = len(counts)
    n = counts.sum()
    if n_classes < FEWEST_CODED or n < SAMPLES_PER_CODE * n_classes:
        return np.zeros(moments.n_features, dtype=bool)
    means = moments.means
    total = moments.scatter_diag
    between = counts @ (means - counts @ means / n) ** 2
    # the difference of two sums has the rounding errors of both
    is_constant = (total > 0) & (total - between <= 1000 * moments.eps * total)
    gaps = np.diff(np.sort(means[:, is_constant], axis=0), axis=0)
    found = is_constant.copy()
    found[is_constant] = (gaps > 1e-6 * np.sqrt(total[is_constant] / n)).all(axis=0)
    return found


def looks_serial(values: Floats) -> bool:
    """Return whether values (n,) are serial numbers or times, as far as one can see.

    They are equally spaced in any order, or in order and multiples of one step.

    Examples
    --------
    >>> looks_serial(np.arange(0.0, 400.0, 17.0)[::-1])
    False
    >>> looks_serial(np.arange(0.0, 800.0, 17.0)[::-1])
    True
    """
    values = np.asarray(values, dtype=np.float64)
    values = values[np.isfinite(values)]
    if len(values) < FEWEST_ROW_NUMBERS:
        return False
    levels = np.unique(values)
    if len(levels) < NEARLY_DISTINCT * len(values):
        return False
    steps = np.diff(levels)
    if len(levels) == len(values) and np.ptp(steps) <= 1e-6 * steps.max():
        return True
    in_order = np.diff(values)
    if not ((in_order >= 0).all() or (in_order <= 0).all()):
        return False
    multiples = steps / steps.min()
    return bool((np.abs(multiples - np.round(multiples)) < 1e-3).all())
