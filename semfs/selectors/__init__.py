"""The selectors: SemFS, SemFSCV, what they explain, and how they are saved.

In the order of a fit:

- ``ranking``, ``linear``, ``naming``: base classes, from scores to a scikit-learn selector; the
  parameters that SemFS and SemFSCV share; predictions
- ``semfs``, ``semfs_cv``, ``folds``: the two selectors, and the search on held-out classes
- ``inputs``: what a user handed over, understood once
- ``problem``: what is optimized, made of ``parameters``, ``candidates``, ``seen_objective``,
  ``knowledge`` (what is known besides labeled samples), and ``rules`` of a panel;
  ``training_checks``, ``table_scale`` and ``batch_like`` warn of data that are probably not
  meant
- ``unlabeled_classes``, ``cluster_moments``, ``clusters``, ``cluster_space``, ``kmeans``:
  unlabeled samples as classes of their own, from the problem they make down to K-means
- ``solving``, ``outcome``, ``fitted``: the solver, its solution in the user's terms, and
  everything that a fit learned
- ``selected_columns``, ``question``, ``prediction``, ``gaussian_density``, ``same_space``,
  ``together``: samples are asked about, and classes compete for them; ``annotated`` makes
  columns of the answers
- ``calibrated``, ``calibration``, ``calibration_sample``, ``certainty``: scores that can be
  compared and trusted
- ``explanation``, ``explaining``, ``copies``, ``stability``: why these features
- ``callbacks``: scikit-learn's callbacks, and what older versions need instead
- ``persistence``: selectors in files
"""
