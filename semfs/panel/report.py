"""`PanelReport`: the facts about a panel, the page, and the list for the vendor."""

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
    """The facts about a panel of selected features.

    Attributes
    ----------
    explanation : Explanation
        Reasons, class means, coverage, correlations and pairs of classes.
    n_features : int
        Number of features of the data, d.
    n_selectable : int or None
        Number of features that could be selected: they vary, and no rule keeps them out. None
        if this is unknown.
    n_samples : int or None
        Number of samples of the seen classes.
    class_sizes : Series of shape (C,), or None
        Number of samples of each seen class.
    shares : DataFrame of shape (k, C), or None
        Share of the samples of each seen class above ``threshold``.
    confused : DataFrame of shape (C, C), or None
        Share of the samples of two seen classes that are nearer to the mean of the other class
        than to that of their own. A sample is left out of the mean of its own class. NaN if
        there are too few samples.
    threshold : str
        The threshold in words: zero for cells, otherwise the mean over the classes.
    rules : list of str
        Sentences on what each rule of the selection cost.
    knowledge : mapping
        For each source of information, whether it was used, and if not, why.
    settings : mapping
        Parameters of the selection.
    command : str
        The command that repeats the selection.
    words : Words
        What features, samples and classes are called on the page.
    prices : mapping
        ``group`` and ``cost`` of each selected feature, if the selector has them.
    ids : mapping
        Other names of the selected features in the columns of ``var`` that hold one for every
        gene, such as Ensembl ids. Empty for other data than AnnData.
    worth : mapping
        Maps the name of each selected group to the share by which the fit would be worse if the
        group were excluded. Empty if this is unknown, as for a selector that was loaded.
    remarks : mapping
        Remarks on selected features, such as that a feature is included although it is not
        among the candidates.
    """

    explanation: Explanation
    n_features: int
    n_selectable: int | None = None
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
    ids: Mapping[str, Sequence[str]] = field(default_factory=dict)
    worth: Mapping[str, float] = field(default_factory=dict)
    remarks: Mapping[str, str] = field(default_factory=dict)

    @property
    def features(self) -> list[str]:
        """The names of the selected features, best first."""
        return [str(name) for name in self.explanation.features.index]

    def table(self) -> pd.DataFrame:
        """Return the list for the vendor.

        The columns are the feature (named by ``words``, for example "gene"), its ``ids``,
        ``reason``, ``frequency`` over bootstraps, ``substitutes`` and, if there are costs,
        ``cost``. The index is the ``rank``. With groups, there is one row per group: ``group``
        is its name, ``reason`` is that of its best feature, and the last columns list its
        features and their ids.
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
            listed_groups |= self._ids_of_groups(groups)
            ranks = pandas.RangeIndex(1, len(groups) + 1, name="rank")
            return pandas.DataFrame(listed_groups, index=ranks)
        found = self.explanation.features
        columns = {
            self.words.feature: self.features,
            **self.ids,
            "reason": self._reasons(),
            "frequency": found["frequency"].to_numpy(),
            "substitutes": [", ".join(names) for names in self.substitutes().values()],
            **self.prices,
        }
        ranks = pandas.RangeIndex(1, len(found) + 1, name="rank")
        return pandas.DataFrame(columns, index=ranks)

    def _ids_of_groups(self, groups: pd.DataFrame) -> dict[str, list[str]]:
        """Return the ids of the features of each group, one text per group."""
        found = {}
        for column, ids in self.ids.items():
            id_of = dict(zip(self.features, ids))
            found[column] = [", ".join(id_of[n] for n in names) for names in groups["features"]]
        return found

    def groups(self) -> pd.DataFrame | None:
        """Return the selected groups in the order of selection, or None without groups.

        The index is the name of the group. ``features`` lists its features. ``gain`` and
        ``share`` are sums over these features. ``reason`` and ``frequency`` are those of the
        feature with the largest gain. ``cost`` is there if there are costs. ``worth`` is the
        share by which the fit would be worse if the group were excluded, or NaN if this is
        unknown.
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
        """Return all pairs of classes, with the most confused pairs first.

        The columns are ``first``, ``second``, ``confused`` (the share of their samples), the
        ``basis`` of this share, and ``distance``. The basis is "counted" if samples were
        counted. It is "predicted" if there are no samples of a class; then the share is that of
        normal distributions, which is usually too low. It is "too few" if there are too few
        samples; then the share is NaN.
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
        """Return, for each feature, its near copies that are not selected, best first."""
        copies = self.explanation.duplicates
        others = copies[~copies["chosen"].astype(bool)]
        # Every feature gets a list, also an empty one: the table has one row for each.
        found: dict[str, list[str]] = {name: [] for name in self.features}
        for name, other in zip(others["feature"], others["other"]):
            found[str(name)].append(str(other))
        return found

    def write(self, path: PathLike) -> list[Path]:
        """Write the page (.html) and, beside it, the list for the vendor (.csv).

        The page needs no network. Return both paths.
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
        """Return the settings as text, without lists of indices and without the command."""
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
        # the rank is before the columns
        place = table.columns.get_loc("frequency") + 1
        for row in rows:
            # Without bootstraps the frequency is not known; a group has one cost.
            row[:] = [None if cell != cell else cell for cell in row]
            row[place] = None if row[place] is None else round(row[place], 4)
        return as_csv(["rank", *table.columns], rows)

    def _reasons(self) -> list[str]:
        """Return why each feature was selected."""
        reasons = []
        for row in self.explanation.features.itertuples():
            parts = [f"varies with {row.carries}"]
            if row.Index in self.remarks:
                parts.insert(0, self.remarks[row.Index])
            if row.separates:
                parts.append(row.separates)
            reasons.append("; ".join(parts))
        return reasons

    def sections(self) -> list[Section]:
        """Return the sections of the page, each with its figures and tables."""
        return panel_sections(self)
