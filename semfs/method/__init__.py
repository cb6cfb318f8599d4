"""The method: moments of labeled samples, the objective, and its two solvers.

From the data to the solution:

- ``moments``: class counts, class means and scatter; ``batches`` removes offsets from them
- ``objective``: J of the paper, with its ``penalty``, ``target_rank`` and ``factor``;
  ``class_means`` predicts the means of unseen classes
- ``quadratic``, ``columns``: the input of solvers, and the Gram columns that they request
- ``direct``: the direct solver, which is ``forward`` selection (with its ``search``,
  ``cholesky`` and ``prefetch``), and then ``exchange``
- ``alternating``: Algorithm 1 of the paper
- ``panel``, ``panel_search``, ``groups``: forward selection under the rules of a panel
- ``demands``, ``markers``, ``rules``, ``known_panel``: what a panel must satisfy as a whole,
  and how a search ends with one that does
- ``alternatives``, ``small_problem``: what the panel would be without a rule or a group
"""
