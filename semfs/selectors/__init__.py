"""The selectors SemFS and SemFSCV, their explanations, and saving.

The modules in the order of a fit:

- ``ranking``, ``linear``, ``predicting``: base classes: a scikit-learn selector from scores;
  the parameters that SemFS and SemFSCV share; predictions
- ``semfs``, ``semfs_cv``, ``folds``: the two selectors, and the search on held-out classes
- ``inputs``: everything that users pass to `fit`, converted to one form
- ``problem``: the optimization problem. Its parts are ``parameters``, ``candidates``,
  ``seen_objective``, ``knowledge`` (what is known besides labeled samples, with
  ``unseen_classes``), and ``rules`` of a panel. ``training_checks``, ``table_scale``,
  ``sample_scale``, ``unlabeled_scale`` and ``batch_like`` warn of data that are probably wrong
- ``unlabeled_classes``, ``cluster_groups``, ``cluster_moments``, ``clusters``,
  ``cluster_space``, ``kmeans``: clusters of unlabeled samples, from the problem of separating
  them down to K-means
- ``solving``, ``outcome``, ``fitted``: the solver, its solution in the features and units of
  the user, and everything that a fit learned
- ``selected_columns``, ``classifier``, ``prediction``, ``gaussian_density``, ``same_space``,
  ``together``: predictions of the classes of samples. ``filling`` fills gaps of new samples,
  and ``annotated`` makes table columns of the predictions
- ``calibrated``, ``calibration``, ``calibration_sample``, ``certainty``: scores that are
  comparable between seen and unseen classes, and probabilities
- ``explanation``, ``explaining``, ``copies``, ``stability``: why features were selected
- ``callbacks``: scikit-learn's callbacks, with a replacement for older versions
- ``persistence``: saving and loading selectors
"""
