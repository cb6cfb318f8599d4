"""File formats, one module each: readers, writers, and checks of files that are not trusted.

`registry.open_reader` finds the reader for any input. To add a format, write a module with a
function that opens it, and add this function to the table in `registry`.
"""
