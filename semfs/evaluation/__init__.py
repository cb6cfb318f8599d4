"""How well columns tell unseen classes apart: K-means, its measures, splits by class."""

from semfs.evaluation.measures import (
    ClassKFold,
    ClassShuffleSplit,
    Clustering,
    cluster_scorer,
    cluster_scores,
    clustering_accuracy,
    kmeans,
    knn_accuracy,
    normalized_mutual_info,
    retrieval_map,
    starting_rows,
    zero_shot_accuracy,
)

__all__ = [
    "ClassKFold",
    "ClassShuffleSplit",
    "Clustering",
    "cluster_scorer",
    "cluster_scores",
    "clustering_accuracy",
    "kmeans",
    "knn_accuracy",
    "normalized_mutual_info",
    "retrieval_map",
    "starting_rows",
    "zero_shot_accuracy",
]
