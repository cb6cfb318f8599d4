"""The drawing of the idea: attributes, features that predict them, unseen classes.

    python docs/concept.py

writes docs/images/concept.svg. The drawing is on a white card, so that it reads the same on a
light and on a dark page. Color is never the only sign: unseen classes are squares and bold.
"""

from pathlib import Path

from evidence import BLUE, ORANGE, text_at

PICTURE = Path(__file__).parent / "images" / "concept.svg"
WIDTH = 880
HEIGHT = 400
GRAY = "#8a8a8a"
LIGHT = "#d0d0d0"

#: The attributes, and the selected feature that predicts each (its place in the column).
ATTRIBUTES = {"stripes": 1, "hooves": 2, "black and white": 4, "hunts": 6}
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

# Pixels from the left and from the top.
TABLE_LEFT = 150
TABLE_TOP = 190
CELL = 36
FEATURE_LEFT = 445
FEATURE_TOP = 100
PLOT_LEFT = 638
PLOT_TOP = 100
PLOT_SIZE = 220


def write_picture() -> None:
    """Draw docs/images/concept.svg."""
    PICTURE.write_text(picture(), encoding="utf-8")


def picture() -> str:
    """The drawing, as SVG."""
    parts = [*_headings(), *_table(), *_features(), *_plot()]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{TITLE}" '
            'font-family="Helvetica, Arial, sans-serif" font-size="18">',
            f"<title>{TITLE}</title>",
            f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#ffffff"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def _headings() -> list[str]:
    bold = ' font-weight="bold"'
    return [
        text_at(20, 34, "1  Describe all classes", style=bold),
        text_at(372, 34, "2  Select features", style=bold),
        text_at(372, 58, "that predict attributes", style=bold),
        text_at(638, 34, "3  Use them on", style=bold),
        text_at(638, 58, "unseen classes", style=bold),
    ]


def _table() -> list[str]:
    """Classes by attributes: a filled mark where a class has an attribute."""
    parts = []
    for j, name in enumerate(ATTRIBUTES):
        x = TABLE_LEFT + CELL * j + CELL / 2
        turned = f' transform="rotate(-40 {x:.1f} {TABLE_TOP - 10})"'
        parts.append(text_at(x, TABLE_TOP - 10, name, style=turned))
    for i, (name, attributes) in enumerate(CLASSES.items()):
        unseen = name in UNSEEN
        # A gap between the seen and the unseen classes.
        y = TABLE_TOP + CELL * i + CELL / 2 + (14 if unseen else 0)
        style = ' font-weight="bold"' if unseen else ""
        parts.append(text_at(TABLE_LEFT - 12, y + 6, name, "end", style))
        for j, attribute in enumerate(ATTRIBUTES):
            x = TABLE_LEFT + CELL * j + CELL / 2
            has = attribute in attributes
            parts.append(_sign(x, y, has, unseen))
    parts.append(_note(20, TABLE_TOP + CELL / 2 - 30, "labeled"))
    parts.append(_note(20, TABLE_TOP + 3 * CELL + 22, "unseen"))
    return parts


def _note(x: float, y: float, text: str) -> str:
    return text_at(x, y, text, style=' font-size="15" font-style="italic"')


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


def _features() -> list[str]:
    """A column of features; lines lead from attributes to those that predict them."""
    parts = []
    right = TABLE_LEFT + CELL * len(ATTRIBUTES)
    for j, (attribute, place) in enumerate(ATTRIBUTES.items()):
        start_y = TABLE_TOP + CELL / 2 + 26 * j
        y = FEATURE_TOP + 34 * place + 12
        parts.append(
            f'<path d="M {right + 8} {start_y:.0f} C {right + 70} {start_y:.0f}, '
            f'{FEATURE_LEFT - 70} {y}, {FEATURE_LEFT - 8} {y}" fill="none" '
            f'stroke="{GRAY}" stroke-width="2"/>'
        )
        middle = text_at(
            FEATURE_LEFT + 60, y + 6, attribute, style=' font-size="15" font-style="italic"'
        )
        parts.append(middle)
    chosen = set(ATTRIBUTES.values())
    for place in range(N_FEATURES):
        y = FEATURE_TOP + 34 * place
        fill = BLUE if place in chosen else "#f2f2f2"
        stroke = BLUE if place in chosen else LIGHT
        parts.append(
            f'<rect x="{FEATURE_LEFT}" y="{y}" width="48" height="24" rx="3" fill="{fill}" '
            f'stroke="{stroke}" stroke-width="2"/>'
        )
    return parts


#: Places of samples in the plot, as shares of its size: two groups.
GROUPS = {
    "zebra": [(0.68, 0.22), (0.78, 0.3), (0.6, 0.33), (0.72, 0.38), (0.84, 0.2), (0.64, 0.15)],
    "lion": [(0.2, 0.7), (0.3, 0.78), (0.15, 0.82), (0.27, 0.64), (0.36, 0.7), (0.22, 0.88)],
}


def _plot() -> list[str]:
    """Samples of the unseen classes in the selected features: two groups."""
    bottom = PLOT_TOP + PLOT_SIZE
    parts = [
        f'<path d="M {PLOT_LEFT} {PLOT_TOP} V {bottom} H {PLOT_LEFT + PLOT_SIZE}" fill="none" '
        f'stroke="{GRAY}" stroke-width="2"/>',
        text_at(
            PLOT_LEFT + PLOT_SIZE / 2, bottom + 26, "selected features", "middle",
            ' font-size="15" font-style="italic"',
        ),
    ]  # fmt: skip
    for name, places in GROUPS.items():
        for share_x, share_y in places:
            x = PLOT_LEFT + PLOT_SIZE * share_x
            y = PLOT_TOP + PLOT_SIZE * share_y
            fill = ORANGE if name == "zebra" else "#ffffff"
            parts.append(
                f'<rect x="{x - 7:.1f}" y="{y - 7:.1f}" width="14" height="14" fill="{fill}" '
                f'stroke="{ORANGE}" stroke-width="2"/>'
            )
    bold = ' font-weight="bold"'
    parts.append(text_at(PLOT_LEFT + 70, PLOT_TOP + 40, "zebra", "middle", bold))
    parts.append(text_at(PLOT_LEFT + 130, PLOT_TOP + 165, "lion", "middle", bold))
    return parts


if __name__ == "__main__":
    write_picture()
