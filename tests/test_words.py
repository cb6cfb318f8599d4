"""User-facing text has one word for each thing (docs/glossary.md), none of an old dialect."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="the sdist has no docs")

#: A pattern, and what we say instead. Add a line when a riddle was found in a text.
INSTEAD = {
    r"foretell\w*|foretold|foresee\w*|foreseen|piloted|pilots?": "predict, prefetch",
    r"recalled": "cached",
    r"worn": "stale",
    r"tidied": "stripped of blanks",
    r"(?:tell|tells|telling|told)(?: \w+){0,3} apart": "separate",
    r"spoken? of|speaks? of": "mark, mean, indicate",
    r"(?:class|classes|types?|ones|those|what|is|are) to come": "unseen",
    r"coming (?:class|classes|types?)": "unseen",
    r"and why not": "and if not, why",
    r"(?:un)?labell(?:ed|ing)": "American spelling: labeled",
    r"licences?": "American spelling: license",
    r"centres?|colours?|grey|behaviours?|favours?|neighbours?": "American spelling",
    r"(?:normal|standard)is(?:ed?|ing|ation)": "American spelling: z",
    r"(?:the|ten|these) rooms? (?:of|for|users)|ten rooms": "module, package",
    r"goes home|taken home": "download",
    r"(?:had|have|has|same) (?:a |no )?say": "count, weight",
    r"nobody can": "not possible in practice",
    r"(?:in|is) no (?:number|measurement|feature)": "is not a",
    r"wonders|bears any|foot of its page": "plain words",
    r"rather too narrow": "likely too narrow",
    r"unlabeled rows?|rows? without (?:a )?labels?": "unlabeled samples",
    r"chosen (?:genes?|features?)|(?:genes?|features?) chosen": "select",
    r"choos\w+ (?:the )?(?:genes|features)": "select",
    r"played? unseen|playing unseen": "are hidden",
    r"look-alikes?": "similar features",
}
PATTERNS = {re.compile(rf"\b(?:{old})\b", re.IGNORECASE): new for old, new in INSTEAD.items()}
#: Text that has to name what it replaces, or quotes others.
EXCEPTIONS = {
    ("semfs/attributes/tables.py", "unlabelled"),  # a text in files that means "no label"
    ("semfs/selectors/fitted.py", "classes to come"),  # the old key of saved selectors
    ("semfs/selectors/fitted.py", "unlabelled"),
}
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    ROOT / "semfs" / "data" / "README.md",
    *sorted(DOCS.glob("*.md")),
    *sorted(DOCS.glob("*.rst")),
    *sorted(DOCS.glob("*.py")),
    *sorted(DOCS.glob("images/*.svg")),
    *sorted((DOCS / "examples").glob("*.py")),
    *sorted((DOCS / "examples").glob("*.rst")),
    *sorted((ROOT / "semfs" / "lab").glob("report.*")),
]


#: Pages whose comments are read, too.
GALLERY = DOCS / "examples"


def without_code(text):
    """A page without fenced blocks and inline code, whose names are what they are."""
    text = re.sub(
        r"^```(?:python|text|console|bash).*?^```", "", text, flags=re.DOTALL | re.MULTILINE
    )
    return re.sub(r"`[^`\n]+`", "", text)


def texts_of(module):
    """All string literals of a module: docstrings, messages, help."""
    tree = ast.parse(module.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def said_in(path):
    """Each word of the dialect in a file, with its place."""
    name = path.relative_to(ROOT).as_posix()
    whole = path.read_text("utf-8")
    is_module = path.suffix == ".py" and path.parent != GALLERY
    texts = texts_of(path) if is_module else [(1, without_code(whole))]
    for line, text in texts:
        for pattern, instead in PATTERNS.items():
            for found in pattern.finditer(text):
                if (name, found[0].lower()) not in EXCEPTIONS:
                    line_here = line + text.count("\n", 0, found.start())
                    yield f"{name}:{line_here}: {found[0]!r}: {instead}"


@pytest.mark.parametrize(
    "sentence",
    [
        "Genes tell these types apart.",
        "what was used, and why not",
        "unlabelled cells",
        "Classes to come",
    ],
)
def test_words_of_the_old_dialect_are_found(sentence):
    assert any(pattern.search(sentence) for pattern in PATTERNS)


@pytest.mark.parametrize("sentence", ["SemFS selects features that separate unseen classes."])
def test_plain_sentences_are_left_alone(sentence):
    assert not any(pattern.search(sentence) for pattern in PATTERNS)


def test_pages_speak_plainly():
    found = [place for path in PAGES for place in said_in(path)]
    assert not found, "\n" + "\n".join(found)


def test_docstrings_help_and_messages_speak_plainly():
    modules = sorted((ROOT / "semfs").rglob("*.py"))
    found = [place for path in modules for place in said_in(path)]
    assert not found, "\n" + "\n".join(found)
