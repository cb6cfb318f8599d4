"""Class descriptions from class names, by a text encoder or a file of word vectors."""

from __future__ import annotations

import itertools
import logging
import os
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from semfs._typing import ArrayLike, Float64, PathLike
from semfs.attributes.names import clean_name
from semfs.io.safety import FileError, file_errors, open_existing, unpacked
from semfs.system import import_optional
from semfs.validation import check_distinct, warn_user

if TYPE_CHECKING:
    import pandas as pd

#: A function that takes n texts to a matrix (n, m) of numbers.
Encoder: TypeAlias = Callable[[list[str]], ArrayLike]

_VECTOR_FILES = (".txt", ".vec", ".gz")
#: Bytes of a line of word vectors; a file with longer ones is something else.
_LONGEST_LINE = 2**20
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


def encode_class_names(
    names: Sequence[str] | Mapping[str, str | Sequence[str]],
    encoder: Encoder | PathLike = "wordllama",
    *,
    prompts: str | Sequence[str] = "{}",
) -> pd.DataFrame:
    """Encode class names or verbal descriptions of classes as numeric vectors.

    Parameters
    ----------
    names : sequence of str, or mapping of str to str or list of str
        Class names, or a mapping from each class to one or more verbal descriptions. Names such
        as ``polar+bear``, ``002.Laysan_Albatross`` and ``airport/terminal`` are split into
        plain words. If a class has several descriptions, their encodings are averaged.
    encoder : callable, path-like or str, default="wordllama"
        - ``"wordllama"``: the model in the package of that name (extra ``text``), which encodes
          each text as 256 numbers and needs no network;
        - a callable that takes a list of texts and returns one row of numbers for each;
        - a text file of GloVe or word2vec vectors (``.txt``, ``.vec``, possibly ``.gz``): the
          vectors of all words in a text are averaged;
        - ``"model2vec:NAME"``, the name or folder of a model2vec model (extra ``text``);
        - the name or folder of a sentence-transformers model (requires the package
          ``sentence-transformers``).
    prompts : str or sequence of str, default="{}"
        Templates into which each text is inserted, such as ``"a photo of a {}"``. If there are
        several prompts, their encodings are averaged.

    Returns
    -------
    pandas.DataFrame of shape (C, m)
        Encodings, indexed by class name. If a file of word vectors lacks some of the words, a
        warning lists them. If a text contains no known word, an error is raised.

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
        raise TypeError(
            f"names must be a list of class names, got text. Write [{names!r}] for one class."
        )
    labels = list(names)
    if not labels:
        raise ValueError("names is empty. Give at least one class name.")
    check_distinct(labels, "class {} is named more than once.")
    templates = [prompts] if isinstance(prompts, str) else list(prompts)
    for template in templates:
        if "{}" not in template:
            raise ValueError(
                f"prompt {template!r} has no {{}} for the class name. "
                "Write, for example, 'a photo of a {}'."
            )
    texts_of_classes = _texts(names, templates)
    # Each text is encoded once, also if several classes share it.
    distinct = list(dict.fromkeys(itertools.chain.from_iterable(texts_of_classes)))
    row_of = dict(zip(distinct, _encode(distinct, encoder)))
    rows = []
    for texts in texts_of_classes:
        encoded = [row_of[text] for text in texts]
        rows.append(np.mean(encoded, axis=0))
    pandas = import_optional("pandas", "data")
    return pandas.DataFrame(rows, index=labels).add_prefix("e")


def _texts(
    names: Sequence[str] | Mapping[str, str | Sequence[str]], templates: list[str]
) -> list[list[str]]:
    """Return the texts to encode for each class: each description inserted into each prompt."""
    if isinstance(names, Mapping):
        descriptions = dict(names)
    else:
        descriptions = {name: clean_name(name) for name in names}
    filled = []
    for label, description in descriptions.items():
        texts = [description] if isinstance(description, str) else list(description)
        valid = [isinstance(text, str) and text.strip() != "" for text in texts]
        if not texts or not all(valid):
            raise ValueError(
                f"class {label!r} has an empty name or description. "
                "Describe the class, or leave it out."
            )
        # Not str.format: other braces in a prompt are text.
        filled.append([t.replace("{}", text) for t in templates for text in texts])
    return filled


def _encode(texts: list[str], encoder: Encoder | PathLike) -> Float64:
    """Return one row (m,) for each text."""
    if isinstance(encoder, (str, os.PathLike)):
        path = Path(encoder)
        if path.suffix.lower() in _VECTOR_FILES or path.is_file():
            return _average_words(open_existing(path), texts)
        encoder = _load_model(str(encoder))
    rows = np.asarray(encoder(texts), dtype=np.float64)
    if rows.ndim != 2 or len(rows) != len(texts) or rows.shape[1] == 0:
        raise ValueError(
            f"the encoder returned an array of shape {rows.shape} for {len(texts)} texts. It "
            "must return one row of numbers per text."
        )
    if not np.isfinite(rows).all():
        raise ValueError("the encoder returned NaN or infinity. It must return finite numbers.")
    return rows


# --- models ----------------------------------------------------------------------------


def _load_model(name: str) -> Encoder:
    """Return the function of a model that encodes texts as rows of numbers."""
    what = f"The encoder {name!r}"
    try:
        if name == "wordllama":
            return _load_wordllama()
        if name.startswith("model2vec:"):
            model2vec = import_optional("model2vec", "text", what=what)
            folder = name.removeprefix("model2vec:")
            return model2vec.StaticModel.from_pretrained(folder).encode
        sentence_transformers = import_optional("sentence_transformers", what=what)
        return sentence_transformers.SentenceTransformer(name).encode
    except ImportError:
        raise
    except Exception as error:  # the packages raise errors of many kinds
        reason = textwrap.shorten(str(error), 160, placeholder=" …")
        raise ValueError(
            f"the encoder {name!r} could not be loaded ({reason}). Give "
            "the folder of a downloaded model or a file of word vectors, "
            "or leave out the encoder to use the default one (pip "
            "install 'semfs[text]')."
        ) from error


def _load_wordllama() -> Encoder:
    """Return the encoder of the model that is contained in the package wordllama."""
    root = logging.getLogger()
    level = root.level
    handlers = root.handlers[:]
    try:
        wordllama = import_optional("wordllama", "text", what="The default encoder")
    finally:  # importing it configures logging for the whole program
        root.setLevel(level)
        root.handlers[:] = handlers
    # It finds its tokenizer only in the folder of downloads; give it the folder of the package.
    folder = Path(wordllama.__file__).parent
    model = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
    return partial(model.embed, norm=True)


# --- word vectors ----------------------------------------------------------------------


def _average_words(path: Path, texts: list[str]) -> Float64:
    """Return the mean vector of the words of each text, and warn of words without a vector."""
    words_of_texts = [_WORD.findall(text) for text in texts]
    # Vectors are found in lower case; the warning shows words as they were written.
    spelling = {word.lower(): word for words in words_of_texts for word in words}
    with file_errors(path, "word-vector"):
        vectors = _read_vectors(path, set(spelling))
    rows = []
    for text, words in zip(texts, words_of_texts):
        known = [vectors[word.lower()] for word in words if word.lower() in vectors]
        if not known:
            raise FileError(
                f"{path} has no vector for any word of {text!r}. Describe the "
                "class in other words: {name: description}."
            )
        rows.append(np.mean(known, axis=0))
    unknown = [word for lower, word in spelling.items() if lower not in vectors]
    if unknown:
        shown = ", ".join(unknown[:10])
        if len(unknown) > 10:
            shown += ", …"
        # The warning points at the caller of encode_class_names.
        warn_user(f"{len(unknown)} words have no vector and were ignored: {shown}.")
    return np.array(rows)


def _read_vectors(path: Path, wanted: set[str]) -> dict[str, Float64]:
    """Return the first vector of each wanted word, ignoring case, in GloVe or word2vec text."""
    vectors: dict[str, Float64] = {}
    size = 0
    for parts in _vector_lines(path):
        if not size and len(parts) == 2 and all(part.isdigit() for part in parts):
            size = int(parts[1])  # word2vec begins with the number of words and the size
            continue
        if not size:
            size = len(parts) - 1
        if not 0 < size < len(parts):
            raise FileError(
                f"{path}: the line of {parts[0][:40]!r} must hold a word and {size} numbers."
            )
        word = " ".join(parts[:-size]).lower()  # some "words" have blanks in them
        if word not in wanted or word in vectors:
            continue
        vectors[word] = np.array(parts[-size:], dtype=np.float64)
        if not np.isfinite(vectors[word]).all():
            raise FileError(f"{path}: the vector of {word!r} holds NaN or infinity.")
    return vectors


def _vector_lines(path: Path) -> Iterator[list[str]]:
    """Yield the parts of each nonempty line of a text file, which may be gzipped."""
    with unpacked(path) as file:
        while line := file.readline(_LONGEST_LINE):
            if len(line) == _LONGEST_LINE:
                raise FileError(
                    f"{path} is not a file of word vectors: a line has more than a million "
                    "bytes."
                )
            parts = line.decode("utf-8", "replace").rstrip().split(" ")
            if parts != [""]:
                yield parts
