"""When a claim of the paper is confirmed: limits, rules in words, and verdicts.

A lead is the difference of two methods on the same class split, averaged over k, with a 95 %
interval over the splits (`semfs.lab.comparison.interval_over_splits`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from semfs.lab.comparison import Interval
from semfs.lab.sections import ROUNDING, never_rises

#: Fewer splits decide nothing.
FEWEST_SPLITS = 10
#: The paper's headline: a relative lead in ACC of at least this share, at this k.
HEADLINE_LEAD = 0.2
HEADLINE_K = 20
#: Differences in ACC within this are called none.
EQUAL = 0.01
#: The range of α in which the paper sees no difference.
LOWEST_ALPHA = 1e-3
HIGHEST_ALPHA = 1.0
#: Convergence: iterations that the paper needs at most, and the share of the largest fall of
#: the objective below which the fall of an iteration must be.
FEWEST_ITERATIONS = 20
SETTLED = 0.01
#: The usual rule of programs, and the default of ours: they stop when an iteration lowers the
#: objective by less than this share of its value.
STOPPED = 1e-4
#: Growth of time with n up to this power is called linear; it is judged only from so many
#: numbers of samples on, the largest of them so many times the smallest.
LINEAR = 1.15
FEWEST_SIZES = 3
SMALLEST_RANGE = 10

#: The rule of all claims that have none of their own.
GENERAL_RULE = (
    "A claim is judged on each data set: it is confirmed there if the 95 % interval of the "
    "lead is above zero (in ACC and in NMI, where both are shown), refuted if an interval is "
    f"below zero, and undecided otherwise or with fewer than {FEWEST_SPLITS} class splits. "
    "Where a data set has several rows, it is confirmed if each of them is, and refuted if one "
    "is. "
    'Over the data sets it is "confirmed" if it is so on each, "in part" if on some of them, '
    '"not confirmed" if on none and refuted on one at least, else "undecided".'
)

#: The rules of claims that have their own.
OWN_RULES = {
    "Headline": (
        "confirmed if the relative lead over each baseline of the paper is at least "
        f"{100 * HEADLINE_LEAD:.0f} % and its interval is above zero; refuted if an interval "
        f"ends below {100 * HEADLINE_LEAD:.0f} %. The lead is that of the mean ACC over the "
        "splits. The best baseline is shown: the one over which the lead is smallest. It is "
        "the best of several on the same splits, so that its luck counts against SemFS. (The "
        "rivals of README's table are chosen on the other splits; with few splits and equally "
        "good rivals that choice is too kind to SemFS.)"
    ),
    "Tuned on the test": (
        "a baseline counts at its defaults, too, in the headline; where its grid was not run, "
        f"nothing is confirmed. Where all grids have fewer than {FEWEST_SPLITS} class splits, "
        "the lead on these is shown."
    ),
    "First": (
        "only the paper's baselines count; other selectors that are ahead are named beside "
        "them."
    ),
    "MCFS": (
        f"it is comparable if no interval reaches below −{EQUAL:g}; refuted if an interval "
        f"ends below −{EQUAL:g}."
    ),
    "Steadier": (
        "the standard deviation of ACC over the splits is compared, as a ratio; the interval "
        "must be above 1, and refutes if it is below 1."
    ),
    "Attributes": (
        "two seen classes (CIFAR-10) have but one direction in which they can differ, so that "
        "attributes and labels are the same targets for SemFS. SemFS and SemFS/c have the "
        "labels beside the attributes, as by default; SemFS (attributes alone) and LASSO do "
        "not."
    ),
    "Labeled share": (
        "ANOVA F and Markers per class stand for the paper's baselines, which are too slow to "
        "be run at each share. SemFS (labels) is shown beside them, and is not judged here: "
        "whether attributes are better than labels is a claim of its own."
    ),
    "α": (
        "confirmed if the interval of the difference in ACC to "
        f"α = {HIGHEST_ALPHA:g} is within ±{EQUAL:g} for each smaller α; refuted if one is "
        "outside."
    ),
    "Proposition 1": (
        "each run is judged; confirmed if no iteration raises the objective by more than "
        f"{ROUNDING:g} of its value, which is rounding."
    ),
    "Iterations": (
        "each run is judged. It has arrived at the first iteration in which the "
        f"objective falls by less than {100 * SETTLED:.0f} % of its largest fall; confirmed if "
        f"that is before the {FEWEST_ITERATIONS}th. Where programs usually stop, at a fall of "
        f"less than {100 * STOPPED:g} % of J, is shown beside it: an algorithm of very small "
        "steps stops there at once, far from where it would arrive."
    ),
    "Linear time": (
        "confirmed if from the last but one number of samples to the last the time grows with "
        f"a power of at most {LINEAR:g}; undecided with fewer than {FEWEST_SIZES} numbers of "
        f"samples, or if the last is less than {SMALLEST_RANGE} times the first."
    ),
}

#: What the intervals say, and what they do not.
INTERVALS = (
    "Intervals are those of the jackknife, which leaves out one split at a time; of a mean of "
    "differences on the same split that is Student's t interval. They say how much other "
    "random splits of the same classes would change a number, not how much other classes "
    "would. The pairs of seen classes of CIFAR-10 are not independent, because each class is "
    "in several of them. There all pairs of one class are left out at a time, so that the "
    "interval also covers other classes of this kind. The interval of a mean over data sets "
    "is Student's t interval of their numbers: it says what other data sets of this kind "
    "would show. There is no correction for the number of comparisons: of 40 intervals "
    "between equally good methods, one lies above zero by chance, and one below. One data set "
    "that confirms or refutes a claim therefore says little."
)

#: Under which conditions the methods were compared.
CONDITIONS = (
    "In the main comparison SemFS knows the attributes of the seen classes alone, as in the "
    "paper, and its settings are the defaults. They differ from the paper's: the labels are "
    "targets beside the attributes, all classes weigh the same, the penalty is relative to "
    "the data, and near copies of selected features are skipped. SemFS (attributes alone) "
    "is the same without the labels. SemFS/c is the paper's variant without the center- "
    "characteristic loss (α = 0). Baselines are at their defaults unless called (oracle): "
    "those have the best point of the paper's grid, chosen on the test for each split, k "
    "and measure. The paper does not say how often it chose; no other choice would be "
    "stronger."
)


def data_set_verdict(leads: Iterable[Interval]) -> str:
    """Return the verdict of all leads on one data set.

    >>> data_set_verdict([Interval(0.2, 0.1, 0.3, 10), Interval(0.2, -0.1, 0.3, 10)])
    'undecided'
    """
    verdicts = [lead.verdict if lead.n >= FEWEST_SPLITS else "not tested" for lead in leads]
    if "behind" in verdicts:
        return "refuted"
    if verdicts and set(verdicts) == {"ahead"}:
        return "confirmed"
    return "undecided"


def overall(verdicts: Sequence[str]) -> str:
    """Return the verdict over the data sets.

    >>> overall(["confirmed", "refuted"])
    'in part'
    """
    if verdicts and set(verdicts) == {"confirmed"}:
        return "confirmed"
    if "confirmed" in verdicts:
        return "in part"
    return "not confirmed" if "refuted" in verdicts else "undecided"


def headline_verdict(leads: Iterable[Interval]) -> str:
    """Return whether the relative leads over all baselines are as large as the paper says."""
    verdicts = {_large_verdict(lead) for lead in leads}
    if "refuted" in verdicts:
        return "refuted"
    return "confirmed" if verdicts == {"confirmed"} else "undecided"


def _large_verdict(lead: Interval) -> str:
    """Return whether one relative lead is as large as the paper says."""
    if lead.low is None or lead.high is None or lead.n < FEWEST_SPLITS:
        return "undecided"
    if lead.mean >= HEADLINE_LEAD and lead.low > 0:
        return "confirmed"
    return "refuted" if lead.high < HEADLINE_LEAD else "undecided"


def equal_verdict(gaps: Iterable[Interval]) -> str:
    """Return whether all differences are within ±EQUAL, or one is outside."""
    verdicts = set()
    for gap in gaps:
        if gap.low is None or gap.high is None or gap.n < FEWEST_SPLITS:
            verdicts.add("undecided")
        elif gap.low > EQUAL or gap.high < -EQUAL:
            verdicts.add("refuted")
        else:
            inside = -EQUAL <= gap.low and gap.high <= EQUAL
            verdicts.add("confirmed" if inside else "undecided")
    if "refuted" in verdicts:
        return "refuted"
    return "confirmed" if verdicts == {"confirmed"} else "undecided"


def comparable_verdict(leads: Iterable[Interval]) -> str:
    """Return whether no lead is below −EQUAL, or one is.

    >>> comparable_verdict([Interval(0.0, -0.009, 0.009, 10)])
    'confirmed'
    """
    verdicts = set()
    for lead in leads:
        if lead.low is None or lead.high is None or lead.n < FEWEST_SPLITS:
            verdicts.add("undecided")
        elif lead.high < -EQUAL:
            return "refuted"
        else:
            verdicts.add("confirmed" if lead.low >= -EQUAL else "undecided")
    return "confirmed" if verdicts == {"confirmed"} else "undecided"


def stopped_at(J: Sequence[float]) -> int | None:
    """Return the first iteration that lowers J by less than 0.01 % of its value, or None.

    J begins with the objective after the first iteration.

    >>> stopped_at([8.0, 4.0, 3.9999, 3.9998])
    3
    """
    falls = enumerate(pairwise(J), start=2)
    return next((i for i, (a, b) in falls if a - b < STOPPED * abs(a)), None)


def settled_at(J: Sequence[float]) -> int | None:
    """Return the first iteration that lowers J by less than 1 % of the largest fall, or None.

    J begins with the objective after the first iteration.

    >>> settled_at([8.0, 4.0, 3.99, 3.989])
    3
    """
    falls = [a - b for a, b in pairwise(J)]
    limit = SETTLED * max(falls, default=0.0)
    return next((i for i, fall in enumerate(falls, start=2) if fall < limit), None)


def iterations_verdict(J: Sequence[float]) -> str:
    """Return whether the objective has arrived early enough."""
    settled = settled_at(J)
    return "confirmed" if settled is not None and settled < FEWEST_ITERATIONS else "refuted"


def falling_verdict(J: Sequence[float]) -> str:
    """Return whether the objective never rises by more than rounding."""
    return "confirmed" if never_rises(J) else "refuted"


def linear_verdict(sizes: Sequence[int], power: float) -> str:
    """Return whether time grows linearly, from sorted numbers of samples and its last power."""
    if len(sizes) < FEWEST_SIZES or sizes[-1] < SMALLEST_RANGE * sizes[0]:
        return "undecided"
    return "confirmed" if power <= LINEAR else "refuted"
