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
    "Each claim is judged on each data set. A data set confirms it if the 95 % interval of the "
    "lead is above zero (in ACC and in NMI, where both are shown), and refutes it if one of "
    "these intervals is below zero. Otherwise, and with fewer than "
    f"{FEWEST_SPLITS} class splits, the data set leaves the claim undecided. A data set with "
    "several rows confirms the claim if each row does, and refutes it if one row does. "
    'Over all data sets, the claim is "confirmed" if each of them confirms it and "in part" if '
    'some do. It is "not confirmed" if none confirms it and at least one refutes it, and '
    '"undecided" otherwise.'
)

#: The rules of claims that have their own.
OWN_RULES = {
    "Headline": (
        "confirmed if the relative lead over each baseline of the paper is at least "
        f"{100 * HEADLINE_LEAD:.0f} % and its interval is above zero; refuted if an interval "
        f"ends below {100 * HEADLINE_LEAD:.0f} %. The lead is computed from the mean ACC over "
        "the splits. The table shows the baseline over which the lead is smallest. Because "
        "this baseline is chosen on the reported splits, the choice favors the baseline, not "
        "SemFS. (In the README's table, the best rival is chosen on the other splits. With "
        "few splits and equally good rivals, that choice favors SemFS.)"
    ),
    "Tuned on the test": (
        "in the headline claim, a baseline also counts at its defaults. If the grid of a "
        "baseline was not run, the claim is not confirmed on that data set. If all grids have "
        f"fewer than {FEWEST_SPLITS} class splits, the lead on these splits is shown."
    ),
    "First": (
        "only the paper's baselines count. Other selectors that are ahead are listed in a "
        "separate column."
    ),
    "MCFS": (
        f"confirmed if no interval reaches below −{EQUAL:g}; refuted if an interval ends "
        f"below −{EQUAL:g}."
    ),
    "Steadier": (
        "the number is the ratio of the standard deviations of ACC over the splits. The claim "
        "is confirmed if the interval of this ratio is above 1 and refuted if it is below 1."
    ),
    "Attributes": (
        "by default, SemFS and SemFS/c use the labels in addition to the attributes; SemFS "
        "(attributes alone) and LASSO do not. With only two seen classes (CIFAR-10), the "
        "classes differ in one direction, so that attributes and labels are the same targets "
        "for SemFS."
    ),
    "Labeled share": (
        "of the paper's baselines, Random and LASSO were run at several shares, on the data "
        "sets that are shown; MCFS, FSASL, L20ALM and WkNN were not. ANOVA F and Markers per "
        "class, which are not in the paper, are also judged. SemFS (labels) is shown but not "
        "judged here, because whether attributes are better than labels is a separate claim. "
        "The slope of the lead is the slope of a straight line through all shares."
    ),
    "α": (
        "confirmed if, for each smaller α, the interval of the difference in ACC from "
        f"α = {HIGHEST_ALPHA:g} is within ±{EQUAL:g}; refuted if one interval is entirely "
        "outside."
    ),
    "Proposition 1": (
        "each run is judged. A run confirms the claim if no iteration raises the objective by "
        f"more than {ROUNDING:g} of its value, which is the size of rounding errors."
    ),
    "Iterations": (
        "each run is judged. A run has converged at the first iteration in which the "
        f"objective falls by less than {100 * SETTLED:.0f} % of its largest fall. A run "
        f"confirms the claim if this is before the {FEWEST_ITERATIONS}th iteration. The table "
        "also shows where programs usually stop, which is when J falls by less than "
        f"{100 * STOPPED:g} %. By this rule, an algorithm with very small steps stops at once, "
        "although it is far from convergence."
    ),
    "Linear time": (
        "the time at the largest number of samples is compared with the time at the second "
        "largest. The claim is confirmed if the time grows with a power of at most "
        f"{LINEAR:g}, that is, not faster than linearly. The time may grow more slowly as long "
        "as costs that do not depend on the number of samples make up a large part of it. The "
        f"claim is undecided with fewer than {FEWEST_SIZES} numbers of samples, or if the "
        f"largest number is less than {SMALLEST_RANGE} times the smallest."
    ),
}

#: What the intervals say, and what they do not.
INTERVALS = (
    "Intervals are jackknife intervals, which leave out one split at a "
    "time. For a mean of paired differences, that is Student's t "
    "interval. The intervals show how much a number would change with "
    "other random splits of the same classes, not with other classes. "
    "The pairs of seen classes of CIFAR-10 are not independent, because"
    " each class is in several of them. There, all pairs with one class"
    " are left out together, and the interval also covers other "
    "classes of this kind. The interval of a mean over data sets is "
    "Student's t interval of the values of the data sets: it indicates "
    "what other data sets of this kind would show. The intervals are "
    "not corrected for the number of comparisons. Of 40 intervals "
    "between equally good methods, on average one lies above zero and "
    "one below by chance. One data set that confirms or refutes a claim "
    "is therefore weak evidence."
)

#: Under which conditions the methods were compared.
CONDITIONS = (
    "In the main comparison, SemFS uses its default settings. As in "
    "the paper, it knows only the attributes of the seen classes. The "
    "defaults differ from the paper's settings: the labels are "
    "additional targets, all classes have the same weight, the penalty "
    "is relative to the data, and near copies of selected features are "
    "skipped. SemFS (attributes alone) uses the same settings without "
    "the labels. SemFS/c is the paper's variant without the "
    "center-characteristic loss (α = 0). Baselines are at their "
    "defaults unless they are marked (oracle). An oracle baseline uses "
    "the best point of the paper's grid, chosen on the test for each "
    "split, k and measure. The paper does not say how often it chose; "
    "no other choice would give stronger baselines."
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
    """Return whether the objective has converged early enough."""
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
