"""Alias of `semfs.method.forward` until all branches are merged."""

from semfs.method.forward import forward_selection

__all__ = ["forward_selection"]
