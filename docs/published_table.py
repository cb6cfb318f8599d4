"""The table of parameters on the page of the method: as published, and by default."""

from semfs import AS_PUBLISHED, SemFS


def published_table() -> str:
    """Return a table of the parameters whose default is not that of `AS_PUBLISHED`."""
    defaults = SemFS().get_params()
    rows = [
        f"| `{name}` | `{value!r}` | `{defaults[name]!r}` |"
        for name, value in AS_PUBLISHED.items()
        if value != defaults[name]
    ]
    return (
        "\n".join(["| parameter | `AS_PUBLISHED` | default |", "|---|---|---|", *rows]) + "\n"
    )
