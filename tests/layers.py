"""The layers of the package: a module or package imports only what stands above it here."""

LAYERS = [
    "_typing",
    "system",
    "progress",
    "validation",
    "arrays",
    "labels",
    "io",
    "rows",
    "method",
    "attributes",
    "evaluation",
    "selectors",
    "baselines",
    "datasets",
    "scverse",
    "select",
    "annotation",
    "lab",
    "cli",
    "__main__",
]
