"""What makes a claim of the paper confirmed: the limits, the rules in words, the verdicts.

A lead is the difference of two methods on the same class split, averaged over k, with Student's
95 % interval over the splits.
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
    'Over the data sets it is "confirmed" if it is so on each, "in part" if on some of them, '
    '"not" confirmed if on none and refuted on one at least, else "undecided".'
)

#: The rules of claims that have their own.
OWN_RULES = {
    "Headline": (
        "confirmed if the mean relative lead over the best baseline of the paper is at least "
        f"{100 * HEADLINE_LEAD:.0f} % and its interval is above zero; refuted if the interval "
        f"ends below {100 * HEADLINE_LEAD:.0f} %. The best baseline is the one that is above "
        f"each other one (or most of them) in ACC at k = {HEADLINE_K}, on the splits that both "
        "have."
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
        f"that is before the {FEWEST_ITERATIONS}th."
    ),
    "Linear time": (
        "confirmed if from the last but one number of samples to the last the time grows with "
        f"a power of at most {LINEAR:g}; undecided with fewer than {FEWEST_SIZES} numbers of "
        f"samples, or if the last is less than {SMALLEST_RANGE} times the first."
    ),
}

#: Under which conditions the methods were compared.
CONDITIONS = (
    "In the main comparison SemFS knows the attributes of the seen classes alone, as in the "
    "paper, and its settings are the defaults. Baselines are at their defaults unless called "
    "(oracle)."
)


def data_set_verdict(leads: Iterable[Interval]) -> str:
    """Return what the leads on one data set say together.

    >>> data_set_verdict([Interval(0.2, 0.1, 0.3, 10), Interval(0.2, -0.1, 0.3, 10)])
    'undecided'
    """
    verdicts = [lead.verdict if lead.n >= FEWEST_SPLITS else "not tested" for lead in leads]
    if "behind" in verdicts:
        return "not"
    if verdicts and set(verdicts) == {"ahead"}:
        return "confirmed"
    return "undecided"


def overall(verdicts: Sequence[str]) -> str:
    """Return the verdict over the data sets.

    >>> overall(["confirmed", "not"])
    'in part'
    """
    if verdicts and set(verdicts) == {"confirmed"}:
        return "confirmed"
    if "confirmed" in verdicts:
        return "in part"
    return "not" if "not" in verdicts else "undecided"


def headline_verdict(lead: Interval) -> str:
    """Return whether a relative lead is as large as the paper says."""
    if lead.low is None or lead.high is None or lead.n < FEWEST_SPLITS:
        return "undecided"
    if lead.mean >= HEADLINE_LEAD and lead.low > 0:
        return "confirmed"
    return "not" if lead.high < HEADLINE_LEAD else "undecided"


def equal_verdict(gaps: Iterable[Interval]) -> str:
    """Return whether all differences are within ±EQUAL, or one is outside."""
    verdicts = set()
    for gap in gaps:
        if gap.low is None or gap.high is None or gap.n < FEWEST_SPLITS:
            verdicts.add("undecided")
        elif gap.low > EQUAL or gap.high < -EQUAL:
            verdicts.add("not")
        else:
            inside = -EQUAL <= gap.low and gap.high <= EQUAL
            verdicts.add("confirmed" if inside else "undecided")
    if "not" in verdicts:
        return "not"
    return "confirmed" if verdicts == {"confirmed"} else "undecided"


def settled_at(J: Sequence[float]) -> int | None:
    """Return the first iteration that lowers J by less than 1 % of the largest fall, or None.

    >>> settled_at([8.0, 4.0, 3.99, 3.989])
    2
    """
    falls = [a - b for a, b in pairwise(J)]
    limit = SETTLED * max(falls, default=0.0)
    return next((i for i, fall in enumerate(falls, start=1) if fall < limit), None)


def iterations_verdict(J: Sequence[float]) -> str:
    """Return whether the objective has arrived early enough."""
    settled = settled_at(J)
    return "confirmed" if settled is not None and settled < FEWEST_ITERATIONS else "not"


def falling_verdict(J: Sequence[float]) -> str:
    """Return whether the objective never rises by more than rounding."""
    return "confirmed" if never_rises(J) else "not"


def linear_verdict(sizes: Sequence[int], power: float) -> str:
    """Return whether time grows linearly, from sorted numbers of samples and its last power."""
    if len(sizes) < FEWEST_SIZES or sizes[-1] < SMALLEST_RANGE * sizes[0]:
        return "undecided"
    return "confirmed" if power <= LINEAR else "not"
