"""What values a parameter may have; an estimator lists a constraint for each."""

from __future__ import annotations

import numbers
import sys
from dataclasses import dataclass

import numpy as np

from semfs.validation import (
    ParameterError,
    ParameterTypeError,
    check_integer,
    check_number,
    check_option,
)


class Constraint:
    """What values a parameter may have; an estimator lists one for each of its parameters."""

    def check(self, name: str, value: object) -> None:
        """Raise `ParameterError` or `ParameterTypeError` if the value is not allowed."""
        raise NotImplementedError


@dataclass(frozen=True)
class AtLeast(Constraint):
    """A finite number, not below ``limit`` and not above ``at_most``.

    >>> AtLeast(0, at_most=1e40).check("alpha", 1e300)
    Traceback (most recent call last):
    semfs.validation.ParameterError: alpha must be at most 1e+40, got 1e+300.
    """

    limit: float
    at_most: float = sys.float_info.max

    def check(self, name: str, value: object) -> None:
        check_number(name, value, at_least=self.limit)
        if float(value) > self.at_most:  # type: ignore[arg-type]
            raise ParameterError(name, f"must be at most {self.at_most:g}, got {value!r}.")


@dataclass(frozen=True)
class FiniteNumber(Constraint):
    """A finite number."""

    def check(self, name: str, value: object) -> None:
        if not isinstance(value, numbers.Real) or isinstance(value, bool):
            raise ParameterTypeError(name, f"must be a number, got {value!r}.")
        if not abs(float(value)) <= sys.float_info.max:
            raise ParameterError(name, f"must be a finite number, got {value!r}.")


@dataclass(frozen=True)
class Above(Constraint):
    """A finite number, larger than ``limit``."""

    limit: float

    def check(self, name: str, value: object) -> None:
        check_number(name, value, above=self.limit)


@dataclass(frozen=True)
class WholeNumber(Constraint):
    """An integer, not below ``limit``."""

    limit: int

    def check(self, name: str, value: object) -> None:
        check_integer(name, value, self.limit)


@dataclass(frozen=True, init=False)
class OneOf(Constraint):
    """One of some words. ``OneOf("auto") | WholeNumber(2)`` also allows a number.

    >>> (OneOf("auto") | WholeNumber(2)).check("n_new_classes", 1)
    Traceback (most recent call last):
    semfs.validation.ParameterError: n_new_classes must be at least 2, got 1.
    """

    words: tuple[str, ...]

    def __init__(self, *words: str) -> None:
        object.__setattr__(self, "words", words)

    def __or__(self, number: Constraint) -> Constraint:
        return WordOrNumber(self, number)

    def check(self, name: str, value: object) -> None:
        check_option(name, value, self.words)


@dataclass(frozen=True)
class WordOrNumber(Constraint):
    """Text must be one of the words; anything else must meet the constraint on numbers."""

    word: OneOf
    number: Constraint

    def check(self, name: str, value: object) -> None:
        constraint = self.word if isinstance(value, str) else self.number
        constraint.check(name, value)


@dataclass(frozen=True)
class ShareUpToOne(Constraint):
    """A number above 0, at most 1."""

    def check(self, name: str, value: object) -> None:
        check_number(name, value, above=0)
        if float(value) > 1.0:  # type: ignore[arg-type]
            raise ParameterError(name, f"must be at most 1, got {value!r}.")


@dataclass(frozen=True)
class OrNone(Constraint):
    """None, or what another constraint allows.

    >>> OrNone(ShareUpToOne()).check("max_correlation", None)
    >>> OrNone(ShareUpToOne()).check("max_correlation", 1.5)
    Traceback (most recent call last):
    semfs.validation.ParameterError: max_correlation must be at most 1, got 1.5.
    """

    constraint: Constraint

    def check(self, name: str, value: object) -> None:
        if value is not None:
            self.constraint.check(name, value)


@dataclass(frozen=True)
class FeatureCount(Constraint):
    """A number of features, or a share of them above 0 and below 1."""

    auto: bool = False  # whether "auto" is allowed
    none: bool = False  # whether None is allowed: a budget decides

    def check(self, name: str, value: object) -> None:
        """Raise unless the value is a count of at least 1, or a share between 0 and 1."""
        if self.auto and isinstance(value, str):
            if value != "auto":
                raise ParameterError(name, f'must be a number or "auto", got {value!r}.')
            return
        if self.none and value is None:
            return
        if isinstance(value, (float, np.floating)) and 0 < value < 1:
            return
        wanted = "must be a whole number of at least 1, or a share of the features below 1"
        if not isinstance(value, numbers.Integral) or isinstance(value, bool):
            hint = ""
            if not self.auto and (value is None or isinstance(value, str)):
                hint = ' SemFSCV(n_features_to_select="auto") chooses the number.'
            raise ParameterTypeError(name, f"{wanted}, got {value!r}.{hint}")
        if int(value) < 1:
            raise ParameterError(name, f"must be at least 1, got {value}.")
