"""Attributes from class names: callables, word vectors and models, without a network."""

import gzip
import logging
import os
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose

from semfs.attributes import describe_attributes, encode_class_names, read_names
from semfs.io.safety import FileError

pytest.importorskip("pandas")
os.environ["HF_HUB_OFFLINE"] = "1"  # before the model packages are imported

VECTORS = {"polar": [1.0, 0.0], "bear": [0.0, 1.0], "cat": [2.0, 2.0], "Paris": [5.0, 5.0]}


def write_vectors(path):
    lines = "".join(f"{word} {row[0]} {row[1]}\n" for word, row in VECTORS.items())
    text = (f"{len(VECTORS)} 2\n" if path.suffix == ".vec" else "") + lines
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["glove.txt", "w2v.vec", "glove.txt.gz"])
def test_word_vectors_are_averaged_in_every_format(tmp_path, name):
    table = encode_class_names(["polar+bear", "CAT", "paris"], write_vectors(tmp_path / name))
    assert table.index.tolist() == ["polar+bear", "CAT", "paris"]
    assert_allclose(table.to_numpy(), [[0.5, 0.5], [2, 2], [5, 5]])


def test_unknown_words_are_reported_and_an_unknown_class_is_an_error(tmp_path):
    path = write_vectors(tmp_path / "glove.txt")
    with pytest.warns(UserWarning, match="1 words have no vector and were ignored: grey"):
        table = encode_class_names(["grey_bear", "cat"], path)
    assert_allclose(table.loc["grey_bear"], [0.0, 1.0])
    with pytest.raises(ValueError, match="no vector for any word of 'zebra'"):
        encode_class_names(["zebra", "cat"], path)


def test_callables_prompts_and_descriptions():
    seen = []

    def encoder(texts):
        seen.extend(texts)
        return [[len(t)] for t in texts]

    table = encode_class_names(
        {"cat": "a pet", "dog": ["a hound", "man's friend"]}, encoder, prompts=["{}", "my {}"]
    )
    assert seen[:2] == ["a pet", "my a pet"]
    assert seen[2:] == ["a hound", "man's friend", "my a hound", "my man's friend"]
    assert_allclose(table.loc["cat"], [(5 + 8) / 2])
    assert_allclose(table.loc["dog"], [(7 + 12 + 10 + 15) / 4])


@pytest.mark.parametrize(
    "names, encoder, message",
    [
        ([], len, "names is empty"),
        (["a", "a"], len, "'a' is named more than once"),
        ([" "], len, "empty name"),
        (["a"], lambda t: [1.0], "one row of numbers per text"),
        (["a"], lambda t: [[np.nan]], "NaN or infinity"),
        (["a", "b"], lambda t: [[1.0]], r"shape \(1, 1\) for 2 texts"),
    ],
)
def test_bad_names_and_encoders_are_explained(names, encoder, message):
    with pytest.raises(ValueError, match=message):
        encode_class_names(names, encoder)


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.txt", b"cat 1 2\ndog x y\n", "could not convert"),
        ("a.txt", b"cat 1 nan\n", "NaN"),
        ("a.gz", b"not gzip", "not a readable word-vector"),
        ("a.vec", b"2 2\ncat 1\n", "line of 'cat' must hold a word and 2 numbers"),
        ("a.txt", b"x" * 2**20, "a line has more than a million bytes"),
        ("a.txt", b"fish 1 2\n", "no vector for any word of"),
        ("a.txt", b"", "no vector for any"),
    ],
)
def test_broken_vector_files_are_one_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FileError, match=message) as caught:
        encode_class_names(["cat", "dog"], tmp_path / name)
    assert "\n" not in str(caught.value)


def test_names_are_read_from_files_and_lists(tmp_path):
    (tmp_path / "n.txt").write_text("cat\n\n polar bear \n")
    (tmp_path / "d.tsv").write_text("cat\ta pet\ndog\ta hound\n")
    assert read_names(str(tmp_path / "n.txt")) == ["cat", "polar bear"]
    assert read_names(str(tmp_path / "d.tsv")) == {"cat": "a pet", "dog": "a hound"}
    assert read_names("cat, polar bear") == ["cat", "polar bear"]
    (tmp_path / "t.csv").write_text('B cell\n"CD4-positive, alpha-beta T cell"\n')
    assert read_names(str(tmp_path / "t.csv")) == ["B cell", "CD4-positive, alpha-beta T cell"]


def test_commas_in_names_are_kept(tmp_path):
    T = "CD4-positive, alpha-beta T cell"
    assert read_names(f'"{T}", macrophage') == [T, "macrophage"]
    assert read_names(f"{T}; macrophage") == [T, "macrophage"]
    (tmp_path / "t.csv").write_text(f"B cell\n{T}\n\nmacrophage\n")
    assert read_names(str(tmp_path / "t.csv")) == ["B cell", T, "macrophage"]
    (tmp_path / "t.txt").write_text(f"{T}\nCD8-positive, alpha-beta T cell\n")
    assert read_names(str(tmp_path / "t.txt")) == [T, "CD8-positive, alpha-beta T cell"]


@pytest.mark.parametrize(
    "content, expected",
    [
        ("cell_type\nB cell\nT cell\n", ["B cell", "T cell"]),
        ("Cell types\nB cell\n", ["B cell"]),
        ("label,ontology\nB,B cell\nT,CL:0000084\n", {"B": "B cell", "T": "CL:0000084"}),
        ("name,description\ncat,a pet\n", {"cat": "a pet"}),
        ("cell\nB cell\n", ["cell", "B cell"]),  # a class of the Cell Ontology
        ("label\n", ["label"]),  # nothing else: it must be a name
        ("class,a small pet\ncat,a pet\n", {"class": "a small pet", "cat": "a pet"}),
    ],
)
def test_header_lines_of_files_of_names_are_passed_over(tmp_path, content, expected):
    (tmp_path / "t.csv").write_text(content)
    assert read_names(str(tmp_path / "t.csv")) == expected


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("t.csv", "label,suggestion,id,score\nB,,,0.0\nT,T cell,,0.9\n", "no class for 'B'"),
        ("t.csv", "label,suggestion,id,score\n", "only a header"),
        ("t.csv", "cat,a pet\ndog\n", "line 2 must hold a name, a comma and"),
        ("e.txt", "\n", "is empty"),
        ("d.tsv", "cat\ta pet\n\ndog\n", "line 3 must hold a name, a tab and a description"),
        ("d.csv", "T,CD4+, alpha-beta\n", "in quotes"),
        ("d.npz", "PK\x03\x04\udcff", "a text file of class names was expected"),
        ("d.tsv", "cat\ta pet\ncat\ta hunter\n", "names class 'cat' twice"),
    ],
)
def test_broken_files_of_names_are_explained(tmp_path, name, content, message):
    (tmp_path / name).write_text(content, errors="surrogateescape")
    with pytest.raises(FileError, match=message):
        read_names(str(tmp_path / name))


def test_the_default_encoder_needs_no_network(monkeypatch, tmp_path):
    pytest.importorskip("wordllama")
    monkeypatch.setattr("socket.socket.connect", None)
    monkeypatch.setenv("HOME", str(tmp_path))
    before = logging.getLogger().handlers[:]
    table = encode_class_names(["cat", "dog", "truck", "automobile", "horse"])
    assert table.shape == (5, 256)
    found = describe_attributes(table)["what"].tolist()
    assert {"cat – dog", "truck – automobile"} <= {text.split(" (")[0] for text in found}
    assert logging.getLogger().handlers == before
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_cannot_be_loaded_is_explained():
    pytest.importorskip("model2vec")
    with pytest.raises(ValueError, match=r"'model2vec:no/such' could not be loaded.*text"):
        encode_class_names(["cat"], "model2vec:no/such")


@pytest.mark.parametrize(
    "encoder, package, hint",
    [
        ("wordllama", "wordllama", r"pip install 'semfs\[text\]'"),
        ("all-MiniLM-L6-v2", "sentence_transformers", "needs sentence_transformers"),
        ("model2vec:x", "model2vec", r"pip install 'semfs\[text\]'"),
    ],
)
def test_missing_packages_are_named(encoder, package, hint, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=hint):
        encode_class_names(["cat"], encoder)
