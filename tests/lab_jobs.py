"""Small jobs and their results, for the tests of the store and of parallel runs."""

from semfs.lab import Job, Result


def make_job(i=0, method="square", **changes):
    """A job that squares the number i."""
    return Job("toy", "numbers", "given", method, {"i": i}, label="Square", **changes)


def square(job):
    """The result of `make_job`."""
    i = job.params["i"]
    scores = {5: {"acc": (i * i, 0.0), "nmi": (i / 3, 0.1)}}
    return Result(scores, 0.5, ["a", "b"], {"i": i})
