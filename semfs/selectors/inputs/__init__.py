"""What users hand to `fit`, `transform` and `predict`, understood once.

Read `kind` first (what is it?), then `fit_input`, which turns it into row sources with encoded
labels. The other modules are one part of the input each: the matrix, labels and weights,
unlabeled samples, batches, missing values, features, the range of the numbers.
"""
