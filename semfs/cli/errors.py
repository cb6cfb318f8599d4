"""How the command line reports errors and warnings: with its options, not Python's parameters.

Only errors that know their parameter (`semfs.validation.ParameterError` and its siblings) are
changed, and only the name of that parameter. All other messages are shown as they are.
"""

#: The option that sets a parameter of the library, where it has another name.
OTHER_NAMES = {
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
    "no_label": "--unlabeled-names",
    "missing_values": "--impute",
    "unknown_rate": "--unknown",
    "class_table": "--table",
}
#: Parameters whose options have their names, with hyphens.
SAME_NAMES = (
    "alpha",
    "attributes",
    "batch",
    "budget",
    "candidates",
    "capacity",
    "costs",
    "drop",
    "exclude",
    "figures",
    "gamma",
    "gene_symbols",
    "groups",
    "impute",
    "include",
    "label",
    "label_weight",
    "layer",
    "max_correlation",
    "max_level",
    "min_cells",
    "min_level",
    "min_per_class",
    "missing_features",
    "normalize",
    "out",
    "scale",
    "scheduler",
    "seed",
    "subset",
    "unseen",
)
#: The option that sets a parameter of the library.
OPTIONS = {name: f"--{name.replace('_', '-')}" for name in SAME_NAMES} | OTHER_NAMES


def message_of(problem: BaseException | Warning | str) -> str:
    """Return the text of an error or warning, with the option in place of a parameter."""
    # it loads scikit-learn, which --help does not need
    from semfs.validation import ParameterProblem

    if isinstance(problem, ParameterProblem):
        return problem.named(OPTIONS.get(problem.name, problem.name))
    # errors such as MemoryError() have no text
    return str(problem) or type(problem).__name__
