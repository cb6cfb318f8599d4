"""scikit-learn's callbacks. Before scikit-learn 1.9, fits run without callbacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

try:
    from sklearn.callback import CallbackContext, CallbackSupportMixin, with_callbacks
except ImportError:

    class CallbackContext:  # type: ignore[no-redef]
        """What a fit reports its steps to: nothing listens."""

        def subcontext(self, **_: Any) -> CallbackContext:
            return self

        def call_on_fit_task_begin(self, **_: Any) -> None:
            pass

        def call_on_fit_task_end(self, **_: Any) -> bool:
            return False

        @contextmanager
        def propagate_callback_context(self, estimator: object) -> Iterator[None]:
            yield

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """An estimator that refuses callbacks."""

        def set_callbacks(self, *callbacks: object) -> None:
            raise ImportError(
                "Callbacks require scikit-learn 1.9 or newer. Upgrade scikit-learn."
            )

        def _init_callback_context(self, **_: Any) -> CallbackContext:
            return CallbackContext()

    def with_callbacks(fit: Callable[..., Any]) -> Callable[..., Any]:
        return fit


__all__ = ["CallbackContext", "CallbackSupportMixin", "with_callbacks"]
