"""scikit-learn's own checks, on every selector of the library."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from semfs import SemFS, SemFSCV


@parametrize_with_checks([SemFS(), SemFS(solver="alternating"), SemFSCV(3)])
def test_semfs_is_a_scikit_learn_estimator(estimator, check):
    check(estimator)
