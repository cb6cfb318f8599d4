"""Leads and verdicts in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from semfs.lab.comparison import Interval, paired_interval

#: Stands for a number that is missing.
NO_NUMBER = "–"


def lead_in_points(lead: Interval) -> str:
    """Return a lead with its interval.

    >>> lead_in_points(Interval(0.05, -0.01, 0.11, 10))
    '+0.050 (−0.010 to +0.110)'
    """
    if lead.n == 0:
        return NO_NUMBER
    mean = _signed(lead.mean)
    if lead.low is None or lead.high is None:
        return mean
    return f"{mean} ({_signed(lead.low)} to {_signed(lead.high)})"


def lead_in_percent(lead: Interval) -> str:
    """Return a relative lead with its interval.

    >>> lead_in_percent(Interval(0.05, -0.01, 0.11, 10))
    '+5 % (−1 to +11)'
    """
    if lead.n == 0:
        return NO_NUMBER
    mean = f"{signed_percent(lead.mean)} %"
    if lead.low is None or lead.high is None:
        return mean
    return f"{mean} ({signed_percent(lead.low)} to {signed_percent(lead.high)})"


def signed_percent(share: float) -> str:
    """Return a share in percent with its sign; zero is not negative.

    >>> signed_percent(-0.001), signed_percent(-0.02)
    ('+0', '−2')
    """
    return f"{round(100 * share) + 0.0:+.0f}".replace("-", "−")


def ratio_in_words(log_ratio: Interval) -> str:
    """Return a ratio with its interval, from its natural logarithm.

    >>> ratio_in_words(Interval(0.0, -0.1, 0.1, 10))
    '1.00 (0.90 to 1.11)'
    """
    mean = f"{math.exp(log_ratio.mean):.2f}"
    if log_ratio.low is None or log_ratio.high is None:
        return mean
    return f"{mean} ({math.exp(log_ratio.low):.2f} to {math.exp(log_ratio.high):.2f})"


def mean_of_data_sets(leads: Sequence[Interval]) -> str:
    """Return the mean of leads in ACC on several data sets, in words."""
    mean = paired_interval([lead.mean for lead in leads])
    return f"mean lead in ACC {lead_in_points(mean)}"


def counts(verdicts: Sequence[str], noun: str = "data set") -> str:
    """Return the number of data sets (or of what the noun says) with each verdict.

    >>> counts(["confirmed", "refuted", "undecided"])
    'confirmed on 1 of 3 data sets, refuted on 1'
    """
    parts = [f"confirmed on {verdicts.count('confirmed')} of {counted(len(verdicts), noun)}"]
    if "refuted" in verdicts:
        parts.append(f"refuted on {verdicts.count('refuted')}")
    return ", ".join(parts)


def counted(n: int, noun: str = "data set") -> str:
    """Return a number and its noun.

    >>> counted(2, "pair of data set and method")
    '2 pairs of data set and method'
    """
    if n == 1:
        return f"1 {noun}"
    # "pair of data set and method" has its plural in the first part
    first, of, rest = noun.partition(" of ")
    return f"{n} {first}s{of}{rest}"


def sentence(parts: Sequence[str]) -> str:
    """Return one sentence of several parts."""
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _signed(value: float) -> str:
    """Return a number with its sign; zero is not negative."""
    return f"{round(value, 3) + 0.0:+.3f}".replace("-", "−")
