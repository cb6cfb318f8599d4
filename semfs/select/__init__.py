"""Select features in a data file, and write a ranked feature table and the reduced data.

`select_features` reads the file in bounded memory. The command `semfs select` calls it.
"""

from semfs.select.selection import FileSelection, select_features

__all__ = ["FileSelection", "select_features"]
