"""Save and load selectors as one ``.npz`` file with arrays and a JSON header, without code.

We use our own format instead of pickle or skops because files must stay readable over releases.
`FORMAT` (format.py) is its version. The header is JSON. A value that JSON does not support is
stored as an object whose entry ``"is"`` names its kind (`KINDS_OF_VALUES`). Arrays are members
of the archive.

All attributes whose names end in ``_`` are fitted attributes, so a new one is saved and loaded
without a change here. A new kind of value needs a subclass of `ValueKind` in `KINDS_OF_VALUES`
(values.py).
"""
