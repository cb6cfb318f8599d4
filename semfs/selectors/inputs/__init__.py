"""The input of `fit`, `transform` and `predict`, converted to one form.

Start with `kind`, which recognizes what was passed, and continue with `fit_input`, which turns
it into row sources with encoded labels. Each other module handles one part of the input: the
matrix, labels and weights, unlabeled samples, batches, missing values, features, or the range
of values.
"""
