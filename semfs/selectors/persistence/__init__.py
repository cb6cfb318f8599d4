"""Save and load selectors: arrays and a JSON header in one ``.npz`` file, no code.

The format is ours, not that of pickle or skops, because files must stay readable over releases;
`FORMAT` (format.py) is its version. The header holds JSON values. What JSON does not have is an
object whose ``"is"`` names a kind of value (`KINDS_OF_VALUES`). Arrays are members of the
archive.

Fitted attributes are all attributes whose names end in ``_``: a new one is saved and loaded
without a change here. A new kind of value needs a subclass of `ValueKind` in `KINDS_OF_VALUES`
(values.py).
"""
