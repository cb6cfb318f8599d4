"""How the command line reports errors and warnings: with its options, not Python's parameters.

Only errors that know their parameter (`semfs.validation.ParameterError` and its siblings) are
changed, and only the name of that parameter. All other messages are shown as they are.
"""

#: The option that sets a parameter of the library.
OPTIONS = {
    "n_features_to_select": "-k",
    "y": "--label",
    "key": "--layer",
    "use_raw": "--layer raw",
    "X_unlabeled": "--unlabeled-file",
    "random_state": "--seed",
    "n_genes": "--genes",
    "n_jobs": "--jobs",
    "n_repeats": "--repeats",
    "n_splits": "--splits",
    "label_weight": "--label-weight",
    "max_correlation": "--max-correlation",
    "min_cells": "--min-cells",
    "no_label": "--unlabeled-names",
    "gene_symbols": "--gene-symbols",
    "min_per_class": "--min-per-class",
    "min_level": "--min-level",
    "max_level": "--max-level",
    "missing_values": "--impute",
    "unknown_rate": "--unknown",
    "class_table": "--table",
    "missing_features": "--missing-features",
}
#: Parameters whose options have their names.
SAME_NAME = (
    *(
        "alpha",
        "attributes",
        "candidates",
        "drop",
        "exclude",
        "gamma",
        "impute",
        "include",
        "layer",
    ),
    *("budget", "capacity", "costs", "figures", "groups"),
    *("normalize", "out", "scale", "scheduler", "seed", "subset", "unseen"),
)
OPTIONS.update({name: f"--{name}" for name in SAME_NAME})


def message_of(problem: BaseException | Warning | str) -> str:
    """Return the text of an error or warning, with the option in place of a parameter."""
    # it loads scikit-learn, which --help does not need
    from semfs.validation import ParameterProblem

    if isinstance(problem, ParameterProblem):
        return problem.named(OPTIONS.get(problem.name, problem.name))
    # errors such as MemoryError() have no text
    return str(problem) or type(problem).__name__
