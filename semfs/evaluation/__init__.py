"""Scores of how well selected features separate unseen classes, and splits by class."""

from semfs.evaluation.scores import (
    adjusted_rand,
    cluster_scorer,
    cluster_scores,
    clustering_accuracy,
    knn_balanced_accuracy,
    normalized_mutual_info,
    starting_rows,
)
from semfs.evaluation.splits import ClassKFold, ClassShuffleSplit

__all__ = [
    "ClassKFold",
    "ClassShuffleSplit",
    "adjusted_rand",
    "cluster_scorer",
    "cluster_scores",
    "clustering_accuracy",
    "knn_balanced_accuracy",
    "normalized_mutual_info",
    "starting_rows",
]
