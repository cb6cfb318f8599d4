"""Errors and warnings of the command line, which name options instead of Python parameters.

Two things are changed. Errors that know their parameter (`semfs.validation.ParameterError` and
its siblings) begin with the option instead of that parameter. And advice such as
``label_weight=1`` becomes ``--label-weight 1``.
"""

import re

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
    "n_unseen": "--n-unseen",
    "no_label": "--unlabeled-names",
    "missing_values": "--impute",
    "unknown_rate": "--unknown",
    "class_table": "--table",
    "sample_id": "--id",
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
    "ontology",
    "out",
    "own",
    "part_of",
    "reduced",
    "scale",
    "scheduler",
    "seed",
    "subset",
    "unlabeled",
    "unseen",
)
#: The option that sets a parameter of the library.
OPTIONS = {name: f"--{name.replace('_', '-')}" for name in SAME_NAMES} | OTHER_NAMES
#: Parameters that a setting in the text of a message may name; y is the name of much else.
SETTABLE = sorted(OPTIONS.keys() - {"y"})
#: A setting as it is written in Python, such as ``gamma=1`` or ``missing_values="class-mean"``.
#: Not within quotes or calls, whose text is that of the user or of Python.
SETTING = re.compile(rf"""(?<![\w'"(`-])({"|".join(SETTABLE)})=("[^"]*"|\w[\w.+-]*\w|\w)""")


def message_of(problem: BaseException | Warning | str) -> str:
    """Return the text of an error or warning, with the option in place of a parameter."""
    # it loads scikit-learn, which --help does not need
    from semfs.validation import ParameterProblem

    if isinstance(problem, ParameterProblem):
        text = problem.named(OPTIONS.get(problem.name, problem.name))
    else:
        # errors such as MemoryError() have no text
        text = str(problem) or type(problem).__name__
    return SETTING.sub(_as_option, text)


def _as_option(setting: re.Match[str]) -> str:
    """Return a setting of Python, as an option with its value."""
    option = OPTIONS[setting[1]]
    value = setting[2].strip('"')
    return option if value == "True" else f"{option} {value}"
