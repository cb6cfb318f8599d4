"""File formats, one module each: readers, writers, and checks of files that are not trusted.

`registry.open_reader` finds the reader of whatever a user hands over. To add a format, write a
module with a function that opens it, and name that function in the table of `registry`.
"""
