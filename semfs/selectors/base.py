"""Old place of the base classes; alias until all branches are merged."""

from semfs.selectors.linear import LinearSelector
from semfs.selectors.ranking import RankingSelector, constant_columns, stable_order

__all__ = ["LinearSelector", "RankingSelector", "constant_columns", "stable_order"]
