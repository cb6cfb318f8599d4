"""The drawing of the idea: attributes, features that predict them, unseen classes.

    python docs/concept.py

writes docs/images/concept.svg, and concept-phone.svg for narrow windows. The drawing is on a
white card, so that it reads the same on a light and on a dark page. Color is never the only
sign: unseen classes are squares and bold.
"""

from dataclasses import dataclass
from pathlib import Path

from evidence import BLUE, ORANGE, text_at

IMAGES = Path(__file__).parent / "images"
GRAY = "#8a8a8a"
LIGHT = "#d0d0d0"
BOLD = ' font-weight="bold"'
NOTE = ' font-size="15" font-style="italic"'

#: The attributes, and the selected feature that predicts each (its place in the column).
ATTRIBUTES = {"stripes": 1, "hooves": 3, "black and white": 4, "hunts": 6}
#: Classes and their attributes; the unseen ones come last.
CLASSES = {
    "horse": ["hooves"],
    "tiger": ["stripes", "hunts"],
    "panda": ["black and white"],
    "zebra": ["stripes", "hooves", "black and white"],
    "lion": ["hunts"],
}
UNSEEN = ("zebra", "lion")
N_FEATURES = 8
TITLE = "Features that predict attributes of labeled classes also separate unseen classes"

# Pixels.
ROW = 40
FEATURE_HEIGHT = 24
FEATURE_WIDTH = 48
FEATURE_STEP = 32
GAP = 16  # between the columns of seen and of unseen classes


@dataclass(frozen=True)
class Layout:
    """Where the three parts of the drawing stand, in pixels from the left and from the top."""

    file: str
    width: int
    height: int
    headings: list[tuple[int, int, str]]
    table: tuple[int, int]
    column: int  # width of a column of the table
    features: tuple[int, int]
    plot: tuple[int, int]
    plot_size: tuple[int, int]


WIDE = Layout(
    file="concept.svg",
    width=880,
    height=400,
    headings=[
        (20, 34, "1  Describe all classes"),
        (410, 34, "2  Select features"),
        (410, 58, "that predict attributes"),
        (650, 34, "3  Use them on"),
        (650, 58, "unseen classes"),
    ],
    table=(160, 170),
    column=42,
    features=(490, 100),
    plot=(650, 100),
    plot_size=(210, 230),
)
PHONE = Layout(
    file="concept-phone.svg",
    width=440,
    height=690,
    headings=[
        (14, 34, "1  Describe all classes"),
        (14, 62, "2  Select features that predict attributes"),
        (14, 450, "3  Use them on unseen classes"),
    ],
    table=(142, 170),
    column=37,
    features=(382, 112),
    plot=(142, 472),
    plot_size=(240, 170),
)


def write_picture() -> None:
    """Draw both files of docs/images."""
    for layout in (WIDE, PHONE):
        (IMAGES / layout.file).write_text(picture(layout), encoding="utf-8")


def picture(layout: Layout = WIDE) -> str:
    """The drawing, as SVG."""
    headings = [text_at(x, y, text, style=BOLD) for x, y, text in layout.headings]
    parts = [*headings, *_table(layout), *_features(layout), *_plot(layout)]
    size = f'width="{layout.width}" height="{layout.height}"'
    box = f'viewBox="0 0 {layout.width} {layout.height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {box} '
            f'{size} role="img" aria-label="{TITLE}" '
            'font-family="Helvetica, Arial, sans-serif" font-size="18">',
            f"<title>{TITLE}</title>",
            f'<rect {size} rx="8" fill="#ffffff"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def _table(layout: Layout) -> list[str]:
    """Attributes by classes: a filled mark where a class has an attribute."""
    left, top = layout.table
    parts = []
    for i, attribute in enumerate(ATTRIBUTES):
        parts.append(text_at(left - 12, _row_center(layout, i) + 6, attribute, "end"))
    for j, (name, attributes) in enumerate(CLASSES.items()):
        unseen = name in UNSEEN
        x = _column_center(layout, j)
        turned = f' transform="rotate(-40 {x:.1f} {top - 8})"{BOLD if unseen else ""}'
        parts.append(text_at(x, top - 8, name, style=turned))
        for i, attribute in enumerate(ATTRIBUTES):
            has = attribute in attributes
            parts.append(_sign(x, _row_center(layout, i), has, unseen))
    n_seen = len(CLASSES) - len(UNSEEN)
    below = top + ROW * len(ATTRIBUTES) + 20
    seen_middle = (_column_center(layout, 0) + _column_center(layout, n_seen - 1)) / 2
    unseen_middle = (_column_center(layout, n_seen) + _column_center(layout, n_seen + 1)) / 2
    parts.append(text_at(seen_middle, below, "labeled", "middle", NOTE))
    parts.append(text_at(unseen_middle, below, "unseen", "middle", NOTE))
    return parts


def _column_center(layout: Layout, j: int) -> float:
    """The middle of column j of the table, in pixels from the left."""
    n_seen = len(CLASSES) - len(UNSEEN)
    gap = GAP if j >= n_seen else 0
    return layout.table[0] + layout.column * (j + 0.5) + gap


def _row_center(layout: Layout, i: int) -> float:
    return layout.table[1] + ROW * (i + 0.5)


def _sign(x: float, y: float, has: bool, unseen: bool) -> str:
    """A circle (labeled) or a square (unseen), filled if the class has the attribute."""
    color = ORANGE if unseen else BLUE
    fill = color if has else "#ffffff"
    stroke = color if has else LIGHT
    if unseen:
        return (
            f'<rect x="{x - 9:.1f}" y="{y - 9:.1f}" width="18" height="18" fill="{fill}" '
            f'stroke="{stroke}" stroke-width="2"/>'
        )
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="10" fill="{fill}" stroke="{stroke}" '
        'stroke-width="2"/>'
    )


def _features(layout: Layout) -> list[str]:
    """A column of features; a line leads from each attribute to the one that predicts it."""
    left, top = layout.features
    parts = []
    start = _column_center(layout, len(CLASSES) - 1) + layout.column / 2 + 2
    bend = (left - start) / 2
    for i, place in enumerate(ATTRIBUTES.values()):
        y = _row_center(layout, i)
        end_y = top + FEATURE_STEP * place + FEATURE_HEIGHT / 2
        parts.append(
            f'<path d="M {start:.0f} {y:.0f} C {start + bend:.0f} {y:.0f}, '
            f'{left - bend:.0f} {end_y:.0f}, {left - 4} {end_y:.0f}" fill="none" '
            f'stroke="{GRAY}" stroke-width="2"/>'
        )
    selected = set(ATTRIBUTES.values())
    for place in range(N_FEATURES):
        fill = BLUE if place in selected else "#f2f2f2"
        stroke = BLUE if place in selected else LIGHT
        parts.append(
            f'<rect x="{left}" y="{top + FEATURE_STEP * place}" '
            f'width="{FEATURE_WIDTH}" height="{FEATURE_HEIGHT}" rx="3" '
            f'fill="{fill}" stroke="{stroke}" stroke-width="2"/>'
        )
    below = top + FEATURE_STEP * N_FEATURES + 14
    parts.append(text_at(left + FEATURE_WIDTH / 2, below, "features", "middle", NOTE))
    return parts


#: Places of samples in the plot, as shares of its size: two groups.
GROUPS = {
    "zebra": [(0.68, 0.22), (0.78, 0.3), (0.6, 0.33), (0.72, 0.38), (0.84, 0.2), (0.64, 0.15)],
    "lion": [(0.2, 0.7), (0.3, 0.78), (0.15, 0.82), (0.27, 0.64), (0.36, 0.7), (0.22, 0.88)],
}
#: Where the names of the groups stand, as shares of the plot's size.
NAMES = {"zebra": (0.36, 0.22), "lion": (0.62, 0.8)}


def _plot(layout: Layout) -> list[str]:
    """Samples of the unseen classes in the selected features: two groups."""
    left, top = layout.plot
    width, height = layout.plot_size
    bottom = top + height
    parts = [
        f'<path d="M {left} {top} V {bottom} H {left + width}" fill="none" '
        f'stroke="{GRAY}" stroke-width="2"/>',
        text_at(left + width / 2, bottom + 26, "selected features", "middle", NOTE),
    ]
    for name, places in GROUPS.items():
        fill = ORANGE if name == "zebra" else "#ffffff"
        for share_x, share_y in places:
            x = left + width * share_x
            y = top + height * share_y
            parts.append(
                f'<rect x="{x - 7:.1f}" y="{y - 7:.1f}" width="14" height="14" fill="{fill}" '
                f'stroke="{ORANGE}" stroke-width="2"/>'
            )
    for name, (share_x, share_y) in NAMES.items():
        x = left + width * share_x
        y = top + height * share_y
        parts.append(text_at(x, y, name, "middle", BOLD))
    return parts


if __name__ == "__main__":
    write_picture()
