"""Rules of a panel: from parameters to a `Panel`, and to sentences about it.

`Candidates` decides which features may be selected at all. The rules here concern the panel as
a whole: groups, markers per class, a budget, and the signal of each class.
"""
