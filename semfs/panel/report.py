"""What is known about a panel: the page, and the list for the vendor, are made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from semfs._typing import PathLike
from semfs.lab.report import as_csv, render_sections, write_text
from semfs.lab.sections import Section
from semfs.panel.page import panel_sections
from semfs.panel.words import GENERAL, Words
from semfs.scverse import versions
from semfs.selectors.explanation import Explanation
from semfs.system import import_optional

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class PanelReport:
    """What is known about a panel.

    Attributes
    ----------
    explanation : Explanation
        Reasons, class means, coverage, correlations and pairs of classes, as frames.
    n_features : int
        Features of the data, d.
    n_samples : int or None
        Samples of the seen classes.
    class_sizes : Series of shape (C,), or None
        Samples of each seen class.
    shares : DataFrame of shape (k, C), or None
        Share of the samples of each seen class that are above ``threshold``.
    confused : DataFrame of shape (C, C), or None
        Share of the samples of two seen classes that are nearer to the other one's mean than
        to that of their own class, in which they take no part; NaN of too few samples.
    threshold : str
        Zero for cells, else the mean over the classes, in words.
    rules : list of str
        What each rule of the selection cost, in words.
    knowledge : mapping
        Each source of information, whether it was used, and if not, why.
    settings : mapping
        Parameters of the selection.
    command : str
        What repeats it.
    words : Words
        What features, samples and classes are called.
    prices : mapping
        ``group`` and ``cost`` of each selected feature, as far as the selector has them.
    worth : mapping
        By the name of a selected group, the share by which the fit would be worse if the group
        were excluded; empty if that is not known, as of a selector that was loaded.
    """

    explanation: Explanation
    n_features: int
    n_samples: int | None = None
    class_sizes: pd.Series | None = None
    shares: pd.DataFrame | None = None
    confused: pd.DataFrame | None = None
    threshold: str = "0"
    rules: Sequence[str] = ()
    knowledge: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)
    command: str = ""
    words: Words = GENERAL
    prices: Mapping[str, Sequence[object]] = field(default_factory=dict)
    worth: Mapping[str, float] = field(default_factory=dict)

    @property
    def features(self) -> list[str]:
        """Names of the selected features, best first."""
        return [str(name) for name in self.explanation.features.index]

    def table(self) -> pd.DataFrame:
        """Return the list for the vendor.

        Columns are the feature (called as the words say), ``reason``, ``frequency`` over
        bootstraps and ``substitutes``, and ``cost`` if there are costs; the index is the
        ``rank``. With groups, there is a row for each of them: the column ``group`` is its
        name, the reason is that of its best feature, and a last column lists its features.
        """
        pandas = import_optional("pandas", "data", what="A panel")
        groups = self.groups()
        if groups is not None:
            substitutes = self.substitutes()
            listed_groups = {
                "group": groups.index,
                "reason": groups["reason"].to_numpy(),
                "frequency": groups["frequency"].to_numpy(),
                "substitutes": [
                    ", ".join(dict.fromkeys(s for name in names for s in substitutes[name]))
                    for names in groups["features"]
                ],
            }
            if "cost" in groups:
                listed_groups["cost"] = groups["cost"].to_numpy()
            listed_groups[self.words.features] = [", ".join(n) for n in groups["features"]]
            ranks = pandas.RangeIndex(1, len(groups) + 1, name="rank")
            return pandas.DataFrame(listed_groups, index=ranks)
        found = self.explanation.features
        columns = {
            self.words.feature: self.features,
            "reason": self._reasons(),
            "frequency": found["frequency"].to_numpy(),
            "substitutes": [", ".join(names) for names in self.substitutes().values()],
            **self.prices,
        }
        ranks = pandas.RangeIndex(1, len(found) + 1, name="rank")
        return pandas.DataFrame(columns, index=ranks)

    def groups(self) -> pd.DataFrame | None:
        """Return the selected groups in the order of their entry; None without groups.

        The index is the name of the group. Columns are its ``features`` (a list), ``gain`` and
        ``share`` of the fit, summed over them, the ``reason`` and ``frequency`` of the feature
        of the largest gain, ``cost`` if there are costs, and ``worth``: how much worse the fit
        would be if the group were excluded, NaN if that is not known.
        """
        if "group" not in self.prices:
            return None
        pandas = import_optional("pandas", "data", what="A panel")
        found = self.explanation.features
        rows = pandas.DataFrame(
            {
                "group": [str(name) for name in self.prices["group"]],
                "features": self.features,
                "gain": found["gain"].to_numpy(),
                "share": found["share"].to_numpy(),
                "reason": self._reasons(),
                "frequency": found["frequency"].to_numpy(),
            }
        )
        if "cost" in self.prices:
            rows["cost"] = pandas.to_numeric(pandas.Series(self.prices["cost"]))
        of_group = rows.groupby("group", sort=False)
        groups = of_group[["gain", "share"]].sum()
        groups.insert(0, "features", of_group["features"].agg(list))
        best = rows.loc[of_group["gain"].idxmax()].set_index("group")
        groups = groups.join(best[["reason", "frequency"]])
        if "cost" in rows:
            groups["cost"] = of_group["cost"].sum()
        groups["worth"] = [self.worth.get(name, np.nan) for name in groups.index]
        return groups

    def pairs(self) -> pd.DataFrame:
        """Return all pairs of classes: those that are confused most come first.

        Columns are ``first``, ``second``, ``confused`` (the share of their samples), the
        ``basis`` of that, and their ``distance``. The basis is "counted"; or "predicted" if a
        class has no samples, or there are none at hand: then it is what normal distributions
        would give, too little as a rule; or "too few" samples, and the share is NaN.
        """
        found = self.explanation.pairs
        confused = found["error"].to_numpy(copy=True)
        basis = np.full(len(found), "predicted", dtype=object)
        if self.confused is not None:
            known = self.confused.columns
            both_known = (found["first"].isin(known) & found["second"].isin(known)).to_numpy()
            rows = known.get_indexer(found["first"][both_known])
            columns = known.get_indexer(found["second"][both_known])
            counted = self.confused.to_numpy()[rows, columns]
            confused[both_known] = counted
            basis[both_known] = np.where(np.isnan(counted), "too few", "counted")
        found = found.assign(confused=confused, basis=basis).drop(columns="error")
        # NaN is last in either order.
        order = np.lexsort((found["distance"], -confused))
        return found.iloc[order].reset_index(drop=True)

    def substitutes(self) -> dict[str, list[str]]:
        """Return for each feature the near copies of it that are not selected, best first."""
        copies = self.explanation.duplicates
        others = copies[~copies["chosen"].astype(bool)]
        # Every feature gets a list, also an empty one: the table has one row for each.
        found: dict[str, list[str]] = {name: [] for name in self.features}
        for name, other in zip(others["feature"], others["other"]):
            found[str(name)].append(str(other))
        return found

    def write(self, path: PathLike) -> list[Path]:
        """Write the page (.html) and, beside it, the list for the vendor (.csv).

        The page needs no network. Returns both paths.
        """
        page = Path(path)
        if page.suffix.lower() not in (".html", ".htm"):
            raise ValueError(f"{path}: the name of the page must end in .html.")
        table = page.with_suffix(".csv")
        text = self._csv()
        return [write_text(self.render(), page), write_text(text, table)]

    def render(self) -> str:
        """Return the HTML of the page."""
        return render_sections(
            self.sections(),
            {
                "command": self.command,
                "versions": versions(),
                "settings": self._shown_settings(),
            },
            title=f"Panel of {len(self.features)} {self.words.features}",
            csv=self._csv(),
            csv_text=f"The {len(self.features)} {self.words.features} (CSV)",
            csv_name="panel.csv",
        )

    def _shown_settings(self) -> dict[str, str]:
        """Settings as text; without lists of indices, and the command, which has its place."""
        shown = {}
        for name, value in self.settings.items():
            if name == "command" or name.endswith("_indices") or value is False:
                continue
            if isinstance(value, list | tuple):
                value = ", ".join(str(item) for item in value)
            shown[name] = str(value)
        return shown

    def _csv(self) -> str:
        table = self.table()
        rows = [[rank, *values] for rank, *values in table.itertuples()]
        for row in rows:
            # Without bootstraps the frequency is not known; a group has one cost.
            row[:] = [None if cell != cell else cell for cell in row]
            row[3] = None if row[3] is None else round(row[3], 4)
        return as_csv(["rank", *table.columns], rows)

    def _reasons(self) -> list[str]:
        """Why each feature was selected."""
        reasons = []
        for row in self.explanation.features.itertuples():
            reason = f"varies with {row.carries}"
            if row.separates:
                reason += f"; {row.separates}"
            reasons.append(reason)
        return reasons

    def sections(self) -> list[Section]:
        """Return the sections of the page, each with its figures and tables."""
        return panel_sections(self)
