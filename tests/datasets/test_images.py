"""The paper's data sets and the xlsa17 layout: right classes, rows and attribute rows."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.io import savemat

from semfs.datasets import CIFAR10_CLASSES, load_apy, load_cifar10, load_sun, load_xlsa17
from semfs.datasets.xlsa17 import read_splits
from semfs.io.safety import FileError

pd = pytest.importorskip("pandas")

SHARED = Path(__file__).parents[3] / "shared" / "data"
real = pytest.mark.skipif(not SHARED.exists(), reason="the real files are not here")


def cells(texts):
    out = np.empty((len(texts), 1), dtype=object)
    out[:, 0] = texts
    return out


# --- a small folder of the xlsa17 layout -------------------------------------------------

NAMES = ["owl", "antelope", "bat", "cow", "dolphin", "eel"]  # not sorted, on purpose
LABELS = np.array([3, 1, 1, 2, 6, 4, 5, 2, 3, 6, 1, 4])  # 1-based
UNSEEN = [6, 4]  # eel and cow


def write_zoo(root, images=None, splits=None, name="ZOO"):
    folder = root / name
    folder.mkdir(parents=True)
    rows = np.arange(1, 13)
    unseen = rows[np.isin(LABELS, UNSEEN)]
    seen = np.setdiff1d(rows, unseen)
    base = {"features": np.arange(24.0).reshape(2, 12), "labels": LABELS[:, None].astype(float)}
    table = {
        "att": np.arange(18.0).reshape(3, 6),
        "original_att": np.arange(18.0).reshape(3, 6) * 2,
        "allclasses_names": cells(NAMES),
        "trainval_loc": seen[2:, None].astype(np.uint16),
        "test_seen_loc": seen[:2, None].astype(np.uint16),
        "test_unseen_loc": unseen[::-1, None].astype(np.uint16),
    }
    for file, content in {
        "res101.mat": base | (images or {}),
        "att_splits.mat": table | (splits or {}),
    }.items():
        savemat(folder / file, {k: v for k, v in content.items() if v is not None})
    return root


def test_xlsa17_has_the_right_classes_rows_and_attribute_rows(tmp_path):
    data = load_xlsa17(write_zoo(tmp_path), "ZOO")
    assert_array_equal(data.X, np.arange(24.0).reshape(2, 12).T)
    assert_array_equal(data.y, [NAMES[i - 1] for i in LABELS])
    assert set(data.unseen) == {"eel", "cow"}
    assert list(data.attributes.index) == NAMES
    assert data.attributes.loc["bat"].tolist() == [2.0, 8.0, 14.0]
    assert data.info["trainval"].min() > 0
    assert set(data.y[data.info["test_unseen"]]) == {"eel", "cow"}


def test_xlsa17_has_the_original_table_too_and_a_flexible_root(tmp_path):
    write_zoo(tmp_path / "xlsa17" / "data")
    data = load_xlsa17(tmp_path, "ZOO", table="original_att")
    assert data.attributes.loc["owl"].tolist() == [0.0, 12.0, 24.0]


def test_the_standard_split_is_known_by_name_or_refused(tmp_path):
    names = ["leopard", "antelope", "seal", "cow", "dolphin", "eel"]
    write_zoo(tmp_path, splits={"allclasses_names": cells(names)}, name="AWA2")
    assert load_xlsa17(tmp_path, "AWA2", "standard").unseen.tolist() == ["leopard", "seal"]
    write_zoo(tmp_path)
    with pytest.raises(ValueError, match=r"standard split is known only for .*, not for ZOO"):
        load_xlsa17(tmp_path, "ZOO", split="standard")
    with pytest.raises(ValueError, match="'proposed' or 'standard', got 'best'"):
        load_xlsa17(tmp_path, "ZOO", "best")
    with pytest.raises(FileNotFoundError, match=r"CUB/att_splits\.mat and .*CUB/res101\.mat"):
        load_xlsa17(tmp_path, "CUB")


def test_classes_without_names_are_numbers(tmp_path):
    write_zoo(tmp_path, splits={"allclasses_names": None})
    assert load_xlsa17(tmp_path, "ZOO").unseen.tolist() == [3, 5]


@pytest.mark.parametrize(
    "images, splits, message",
    [
        ({"features": np.zeros((12, 2))}, {}, "One column for each was expected. It seems"),
        ({"features": np.zeros((2, 5))}, {}, r"shape \(2, 5\), but there are 12 labels"),
        (
            {"labels": LABELS[:, None] - 1},
            {},
            "labels holds 0, but whole numbers starting at 1",
        ),
        ({"labels": LABELS[:, None] + 1}, {}, "labels go up to 7, but .* has 6 columns"),
        ({"features": None}, {}, "has no 'features'. Found: labels"),
        ({"features": cells(["a", "b"])}, {}, "features must be a matrix of numbers"),
        ({}, {"att": np.zeros((6, 3))}, "One column for each was expected. It seems"),
        ({}, {"att": None}, "has no 'att'. Found: original_att, allclasses_names"),
        ({}, {"trainval_loc": np.array([[1.5]])}, "trainval_loc holds 1.5, but whole numbers"),
        ({}, {"test_unseen_loc": np.array([[13]])}, "names image 13, but there are only 12"),
        ({}, {"test_unseen_loc": None}, "has no 'test_unseen_loc'"),
    ],
)
def test_wrong_xlsa17_folders_are_one_line(tmp_path, images, splits, message):
    write_zoo(tmp_path, images, splits)
    with pytest.raises(FileError, match=message) as caught:
        load_xlsa17(tmp_path, "ZOO")
    assert "\n" not in str(caught.value)


SHAPES = st.tuples(st.integers(0, 5), st.integers(0, 5))


@settings(max_examples=40, deadline=None, derandomize=True, database=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip
@given(SHAPES, SHAPES, st.lists(st.integers(-1, 5)), st.lists(st.integers(-1, 7)))
def test_arbitrary_folders_are_read_or_explained(tmp_path, features, att, labels, unseen):
    folder = tmp_path / "ZOO"
    folder.mkdir(exist_ok=True)
    savemat(folder / "res101.mat", {"features": np.zeros(features), "labels": labels})
    splits = {"att": np.ones(att), "test_unseen_loc": unseen}
    savemat(folder / "att_splits.mat", splits | {"allclasses_names": cells(NAMES[: att[1]])})
    message = ""
    try:
        load_xlsa17(tmp_path, "ZOO")
    except ValueError as error:
        message = str(error)
    assert "\n" not in message


# --- the real tables and splits ------------------------------------------------------------


@real
@pytest.mark.parametrize(
    "name, shape, sizes",
    [
        ("AWA1", (50, 85), (19832, 4958, 5685)),
        ("AWA2", (50, 85), (23527, 5882, 7913)),
        ("SUN", (717, 102), (10320, 2580, 1440)),
        ("APY", (32, 64), (5932, 1483, 7924)),
    ],
)
def test_real_tables_and_splits_have_the_published_sizes(name, shape, sizes):
    _, table, rows = read_splits(SHARED / "xlsa17", name)
    assert table.shape == shape
    assert tuple(len(rows[k]) for k in ("trainval", "test_seen", "test_unseen")) == sizes
    assert_allclose(np.linalg.norm(table, axis=1), 1.0)
    assert not table.columns[0].startswith("a0")  # the published names


@real
def test_real_sun_equals_the_benchmark_table_and_table_1(tmp_path):
    data = load_sun(SHARED / "SUNAttributeDB")
    table = read_splits(SHARED / "xlsa17", "SUN", table="original_att")[1]
    pd.testing.assert_frame_equal(data.attributes, table)
    assert (len(data.seen), len(data.unseen)) == (707, 10)
    _, y_seen, _, y_unseen = data.split()
    assert (len(y_seen), len(y_unseen)) == (14140, 200)
    golden = json.loads((SHARED.parent / "golden" / "sun_apy_splits.json").read_text())["sun"]
    ranges = golden["unseen_image_rows_0based_first_last"]
    rows = np.concatenate([np.arange(first, last + 1) for first, last in ranges])
    assert_array_equal(np.flatnonzero(np.isin(data.y, data.unseen)), rows)


@real
def test_real_apy_equals_the_benchmark_table_and_table_1():
    data = load_apy(SHARED / "aPY_annotations")
    table = read_splits(SHARED / "xlsa17", "APY", table="original_att")[1]
    pd.testing.assert_frame_equal(data.attributes, table)
    _, y_seen, _, y_unseen = data.split()
    assert (len(y_seen), len(y_unseen)) == (12695, 2644)
    assert (len(data.seen), len(data.unseen)) == (20, 12)
    assert data.y[0] == "horse"


# --- SUN and aPY in small ------------------------------------------------------------------


def write_sun(folder):
    names = [f"a/{scene}/sun_{i}.jpg" for scene in ("abbey", "lake/natural") for i in range(3)]
    savemat(folder / "images.mat", {"images": cells(names)})
    savemat(folder / "attributes.mat", {"attributes": cells(["wet", "old"])})
    votes = np.array([[0, 1], [0, 1], [1 / 3, 2 / 3], [1, 0], [2 / 3, 0], [1, 1 / 3]])
    savemat(folder / "attributeLabels_continuous.mat", {"labels_cv": votes})
    return folder


def test_sun_says_what_it_expects(tmp_path):
    write_sun(tmp_path)
    with pytest.raises(FileError, match="features has 5 rows, expected 6"):
        load_sun(tmp_path, np.zeros((5, 2)))
    savemat(tmp_path / "attributes.mat", {"attributes": cells(["wet"])})
    with pytest.raises(FileError, match=r"shape \(6, 2\), not \(6, 1\)"):
        load_sun(tmp_path)
    savemat(tmp_path / "attributes.mat", {"attributes": np.eye(2)})
    with pytest.raises(FileError, match="attributes must be a cell array of text"):
        load_sun(tmp_path)


def test_sun_averages_votes(tmp_path):
    data = load_sun(write_sun(tmp_path), features=np.arange(12.0).reshape(6, 2))
    assert data.X.shape == (6, 2)
    assert data.unseen.tolist() == ["lake_natural"]
    assert_allclose(data.attributes.loc["abbey"], [1 / 9, 8 / 9])


def write_apy(folder, line="c.jpg mug 1 2 3 4 0 1\n"):
    (folder / "attribute_names.txt").write_text("round\nshiny\n")
    (folder / "class_names.txt").write_text("dog\ncat\nmug\n")
    (folder / "apascal_train.txt").write_text("a.jpg dog 1 2 3 4 1 0\na.jpg cat 1 2 3 4 0 0\n")
    (folder / "apascal_test.txt").write_text("b.jpg dog 1 2 3 4 0 0\n")
    (folder / "ayahoo_test.txt").write_text(line)
    return folder


def test_apy_averages_objects_and_keeps_the_order_of_the_files(tmp_path):
    data = load_apy(write_apy(tmp_path))
    assert data.y.tolist() == ["dog", "cat", "dog", "mug"]
    assert data.unseen.tolist() == ["mug"]
    assert data.attributes.loc["dog"].tolist() == [0.5, 0.0]
    assert list(data.attributes.index) == ["dog", "cat", "mug"]
    assert data.info["ayahoo_test"].tolist() == [3]


@pytest.mark.parametrize(
    "line, message",
    [
        ("c.jpg mug 1 2 3 4 0\n", r"object 1: 7 columns, but 8 were expected"),
        ("c.jpg mug 1 2 3 4 0 7\n", "object 1: .* 2 times 0 or 1"),
        ("c.jpg cup 1 2 3 4 0 1\n", "class_names.txt must name the classes"),
        ("", "class_names.txt must name the classes"),
    ],
)
def test_broken_annotations_name_file_and_line(tmp_path, line, message):
    with pytest.raises(FileError, match=message):
        load_apy(write_apy(tmp_path, line))


# --- CIFAR-10 --------------------------------------------------------------------------------


def write_cifar(folder):
    """Six tiny batches; labels 0 … 9 in turn."""
    folder.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(0).integers(0, 256, (60, 3072), dtype=np.uint8)
    for b, part in enumerate(np.split(pixels, 6)):
        name = "test_batch" if b == 5 else f"data_batch_{b + 1}"
        np.hstack([np.arange(10, dtype=np.uint8)[:, None], part]).tofile(folder / f"{name}.bin")
    return pixels


WORDS = pd.DataFrame(np.arange(50.0).reshape(10, 5), index=CIFAR10_CLASSES)


def test_cifar10_batches_give_45_splits(tmp_path):
    pixels = write_cifar(tmp_path / "c")
    data = load_cifar10(tmp_path / "c", "pixels", attributes=WORDS)
    assert data.X.dtype == np.float32
    assert_allclose(data.X, pixels / 255, rtol=1e-6)
    assert data.y[:3].tolist() == ["airplane", "automobile", "bird"]
    assert (len(data.info["train"]), len(data.info["test"])) == (50, 10)
    assert len(list(data.every_split(n_seen=2))) == 45


def test_cifar10_words_from_a_mat_file_beside_the_batches(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no CIFAR-10 batches\. Unpack"):
        load_cifar10(tmp_path)
    write_cifar(tmp_path / "cifar-10-batches-bin")
    with pytest.raises(FileNotFoundError, match=r"cifar10_wordTable\.mat is not in or beside"):
        load_cifar10(tmp_path)
    words = {"wordTable": WORDS.to_numpy().T, "label_names": cells(list(CIFAR10_CLASSES))}
    savemat(tmp_path / "cifar10_wordTable.mat", words)
    data = load_cifar10(tmp_path)
    assert data.attributes.loc["cat"].tolist() == WORDS.loc["cat"].tolist()
    assert data.X.shape == (60, 0)
    savemat(tmp_path / "cifar10_wordTable.mat", words | {"wordTable": WORDS.to_numpy()})
    with pytest.raises(FileError, match=r"shape \(10, 5\), but there are 10 label_names"):
        load_cifar10(tmp_path)


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda b: b[:-1], "not a multiple of 3073"),
        (lambda b: b"\x0b" + b[1:], "found label 11, but CIFAR-10 has only the labels 0 to 9"),
        (lambda b: b"", "0 bytes"),
    ],
)
def test_damaged_batches_are_explained(tmp_path, damage, message):
    write_cifar(tmp_path / "c")
    path = tmp_path / "c" / "data_batch_3.bin"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(FileError, match=message):
        load_cifar10(tmp_path / "c", attributes=WORDS)
