"""Class attributes from class names: any text encoder, or a file of word vectors."""

import csv
import gzip
import logging
import re
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from semfs.io.safety import FileError, file_errors, open_existing
from semfs.system import import_optional
from semfs.validation import check_distinct

_VECTOR_FILES = (".txt", ".vec", ".gz")
_LONGEST_LINE = 2**20


def encode_class_names(
    names: Sequence[str] | Mapping[str, Any],
    encoder: Any = "wordllama",
    *,
    prompts: str | Sequence[str] = "{}",
) -> Any:
    """Return attributes for classes from their names or descriptions.

    Parameters
    ----------
    names : sequence of str, or mapping of str to str or list of str
        Class names, of which ``polar+bear``, ``002.Laysan_Albatross`` or ``airport/terminal``
        are read as plain words; or for each class a description, or several, which are
        averaged.
    encoder : callable, path-like or str, default="wordllama"
        - ``"wordllama"``: 256 numbers per text from the package of that name (extra
          ``text``), which brings its model along: no network is needed;
        - a callable that takes a list of texts and returns one row of numbers for each;
        - a file of word vectors, GloVe or word2vec text (``.txt``, ``.vec``, possibly
          ``.gz``): the vectors of a text's words are averaged;
        - ``"model2vec:NAME"``, the name or folder of a model2vec model (extra ``text``);
        - the name or folder of a sentence-transformers model (package of that name).
    prompts : str or sequence of str, default="{}"
        Templates that each text is put into, such as ``"a photo of a {}"``; the encodings
        of several are averaged.

    Returns
    -------
    pandas.DataFrame of shape (C, m)
        Indexed by class name. A warning names the words that a file of word vectors does not
        have; a text without a known word is an error.

    Examples
    --------
    >>> def lengths(texts):
    ...     return [[len(text), text.count(" ")] for text in texts]
    >>> encode_class_names(["polar+bear", "cat"], lengths)
                 e0   e1
    polar+bear  10.0  1.0
    cat          3.0  0.0
    """
    if isinstance(names, str):
        raise TypeError(f"names must be a list of class names; write [{names!r}].")
    labels, templates = list(names), [prompts] if isinstance(prompts, str) else list(prompts)
    if not labels:
        raise ValueError("names is empty. Give at least one class name.")
    check_distinct(labels, "class {} is named more than once.")
    for template in (template for template in templates if "{}" not in template):
        raise ValueError(f"prompt {template!r} has no {{}} for the class name.")
    about = names if isinstance(names, Mapping) else {n: clean_name(n) for n in labels}
    filled = []
    for label, said in about.items():
        texts = [said] if isinstance(said, str) else list(said)
        if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
            raise ValueError(f"class {label!r} has an empty name or description.")
        filled.append([t.replace("{}", text) for t in templates for text in texts])
    flat = list(dict.fromkeys(text for group in filled for text in group))
    row_of = dict(zip(flat, _encode(flat, encoder)))
    values = [np.mean([row_of[text] for text in group], axis=0) for group in filled]
    return import_optional("pandas", "data").DataFrame(values, index=labels).add_prefix("e")


def clean_name(name: str) -> str:
    """Return a class name as plain words.

    >>> clean_name("002.Laysan_Albatross"), clean_name("pickUpTruck")
    ('Laysan Albatross', 'pick Up Truck')
    """
    text = re.sub(r"^\d+[._\s-]+(?=\D)", "", str(name))
    text = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", " ", text)
    return " ".join(re.sub(r"[_+/\\|.:;,]+", " ", text).split()) or str(name)


def read_names(source: str) -> list[str] | dict[str, str]:
    """Return class names from text with commas, or from a file.

    A file has one name per line, or name, tab (in ``.csv`` files: comma) and description.
    """
    path = Path(source)
    if not path.suffix and not path.is_file():
        return [name.strip() for name in source.split(",") if name.strip()]
    between = "comma" if path.suffix.lower() == ".csv" else "tab"
    with file_errors(open_existing(path), "name"):
        try:
            text = path.read_text("utf-8-sig")
        except UnicodeDecodeError:
            raise FileError(f"{path}: a text file of class names was expected.") from None
        cells = csv.reader(text.splitlines(), delimiter="," if between == "comma" else "\t")
        found = enumerate(([part.strip() for part in row] for row in cells), start=1)
        lines = {number: row for number, row in found if any(row)}
    if not (rows := lines.values()):
        raise FileError(f"{path} is empty; one class name per line was expected.")
    if all(len(row) == 1 for row in rows):
        return [row[0] for row in rows]
    for line, row in lines.items():
        if len(row) != 2 or not all(row):
            wanted = f"a name, a {between} and a description; put it in quotes if it has a"
            raise FileError(f"{path}, line {line} needs {wanted} {between} of its own.")
    check_distinct([row[0] for row in rows], f"{path} names class {{}} twice.", FileError)
    return dict(rows)


def _encode(texts: list[str], encoder: Any) -> np.ndarray:
    """One row (m,) for each text."""
    if not callable(encoder):
        path = Path(encoder)
        if path.suffix.lower() in _VECTOR_FILES or path.is_file():
            return _average_words(open_existing(path), texts)
        encoder = _model(str(encoder))
    rows = np.asarray(encoder(texts), dtype=np.float64)
    if rows.ndim != 2 or len(rows) != len(texts) or not rows.shape[1]:
        found = f"the encoder returned shape {rows.shape} for {len(texts)} texts"
        raise ValueError(f"{found}; one row of numbers per text was expected.")
    if not np.isfinite(rows).all():
        raise ValueError("the encoder returned NaN or infinity.")
    return rows


def _model(name: str) -> Any:
    """The function of a model that takes texts to rows."""
    what = f"The encoder {name!r}"
    try:
        if name == "wordllama":
            return _wordllama()
        if name.startswith("model2vec:"):
            models = import_optional("model2vec", "text", what=what).StaticModel
            return models.from_pretrained(name.removeprefix("model2vec:")).encode
        return (
            import_optional("sentence_transformers", what=what).SentenceTransformer(name).encode
        )
    except ImportError:
        raise
    except Exception as error:
        reason = textwrap.shorten(str(error), 160, placeholder=" …")
        raise ValueError(
            f"the encoder {name!r} could not be loaded ({reason}). Give the folder of a "
            "downloaded model, a file of word vectors, or nothing: the default encoder comes "
            "with pip install 'semfs[text]'."
        ) from error


def _wordllama() -> Any:
    """The model that comes inside the package wordllama."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    try:
        library = import_optional("wordllama", "text", what="The default encoder")
    finally:  # importing it sets up logging for everybody
        root.setLevel(level)
        root.handlers[:] = handlers
    # As the folder of downloads its own is given, where alone it finds its tokenizer.
    folder = Path(library.__file__).parent
    model = library.WordLlama.load(cache_dir=folder, disable_download=True)
    return partial(model.embed, norm=True)


def _average_words(path: Path, texts: list[str]) -> np.ndarray:
    """Mean vector of each text's words; those without a vector are named in a warning."""
    words = [re.findall(r"[^\W_]+(?:['’-][^\W_]+)*", text) for text in texts]
    wanted = {word.lower(): word for group in words for word in group}
    with file_errors(path, "word-vector"):
        vectors = _read_vectors(path, set(wanted))
    rows = [[vectors[w.lower()] for w in group if w.lower() in vectors] for group in words]
    for text in (text for text, row in zip(texts, rows) if not row):
        lacking = f"{path} has no vector for any word of {text!r}."
        raise FileError(lacking + " Use other words: {name: description}.")
    if unknown := [word for lower, word in wanted.items() if lower not in vectors]:
        shown = ", ".join(unknown[:10]) + (", …" if len(unknown) > 10 else "")
        warnings.warn(f"{len(unknown)} words have no vector: {shown}.", stacklevel=4)
    return np.array([np.mean(row, axis=0) for row in rows])


def _read_vectors(path: Path, wanted: set[str]) -> dict[str, np.ndarray]:
    """The first vector of each wanted word, in any case, of GloVe or word2vec text."""
    opener: Any = gzip.open if path.suffix == ".gz" else open
    vectors, size = dict[str, np.ndarray](), 0
    with opener(path, "rb") as file:
        while line := file.readline(_LONGEST_LINE):
            if len(line) == _LONGEST_LINE:
                raise FileError(f"{path} has a line of a million bytes: no word vectors.")
            parts = line.decode("utf-8", "replace").rstrip().split(" ")
            if parts == [""]:
                continue
            if not size and len(parts) == 2 and all(part.isdigit() for part in parts):
                size = int(parts[1])  # word2vec begins with count and size
                continue
            size = size or len(parts) - 1
            if not 0 < size < len(parts):
                raise FileError(f"{path}: {parts[0][:40]!r} is not followed by {size} numbers.")
            word = " ".join(parts[:-size]).lower()
            if word in wanted and word not in vectors:
                vectors[word] = np.array(parts[-size:], dtype=np.float64)
                if not np.isfinite(vectors[word]).all():
                    raise FileError(f"{path}: the vector of {word!r} holds NaN or infinity.")
    return vectors
