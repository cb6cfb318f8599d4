"""How well columns tell unseen classes apart: K-means, its measures, splits by class."""

from semfs.evaluation.scores import (
    cluster_scorer,
    cluster_scores,
    clustering_accuracy,
    normalized_mutual_info,
    starting_rows,
)
from semfs.evaluation.splits import ClassKFold, ClassShuffleSplit

__all__ = ["ClassKFold", "ClassShuffleSplit", "cluster_scorer", "cluster_scores"]
__all__ += ["clustering_accuracy", "normalized_mutual_info", "starting_rows"]
