"""Labels in files: joined by row name or line by line, and text that means "no label"."""

import gzip
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.io import mmwrite

from semfs.io.registry import open_reader
from semfs.io.safety import FileError
from semfs.rows import open_blocks

pd = pytest.importorskip("pandas")
h5py = pytest.importorskip("h5py")
anndata = pytest.importorskip("anndata")
pytest.importorskip("pyarrow")

N, D = 12, 5
COUNTS = np.random.default_rng(0).poisson(2.0, (N, D))
LABELS = np.array(["T cell", "B cell", "CD4-positive, alpha-beta T cell"])[np.arange(N) % 3]
BARCODES = [f"AAA{i}-1" for i in range(N)]
GENES = [f"g{j}" for j in range(D)]

pytestmark = pytest.mark.filterwarnings("ignore:the cells hold")


def tenx_folder(folder, packed=True):
    folder = folder / "cells"
    folder.mkdir()
    mmwrite(folder / "matrix.mtx", sp.coo_array(COUNTS.T))
    (folder / "features.tsv").write_text("".join(f"id\t{g}\tGene\n" for g in GENES))
    (folder / "barcodes.tsv").write_text("".join(f"{b}\n" for b in BARCODES))
    if packed:
        for path in list(folder.iterdir()):
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    return folder


def mtx(folder):
    return tenx_folder(folder, packed=False) / "matrix.mtx"


def cells():
    return anndata.AnnData(
        sp.csr_matrix(COUNTS.astype(float)),
        pd.DataFrame({"type": LABELS}, index=BARCODES),
        pd.DataFrame(index=GENES),
    )


def h5ad(folder):
    cells().write_h5ad(folder / "cells.h5ad")
    return folder / "cells.h5ad"


def zarr(folder):
    pytest.importorskip("zarr")
    with warnings.catch_warnings(action="ignore"):
        cells().write_zarr(folder / "cells.zarr")
    return folder / "cells.zarr"


def tenx_h5(folder):
    S = sp.csr_array(COUNTS)
    with h5py.File(folder / "cells.h5", "w") as file:
        group = file.create_group("matrix")
        for name in ("data", "indices", "indptr"):
            group[name] = getattr(S, name)
        group["shape"] = [D, N]
        group["features/name"] = np.array(GENES, dtype="S")
        group["barcodes"] = np.array(BARCODES, dtype="S")
    return folder / "cells.h5"


def csv_with_names(folder):
    pd.DataFrame(COUNTS, index=BARCODES, columns=GENES).to_csv(folder / "cells.csv")
    return folder / "cells.csv"


FORMATS = [tenx_folder, mtx, h5ad, zarr, tenx_h5, csv_with_names]


def label_file(folder, rows, header="barcode,type\n", name="labels.csv", delimiter=","):
    path = folder / name
    lines = [f'{BARCODES[i]}{delimiter}"{LABELS[i]}"\n' for i in rows]
    path.write_text(header + "".join(lines))
    return str(path)


@pytest.mark.parametrize("write", FORMATS)
def test_names_of_rows_and_features_are_read(write, tmp_path):
    reader, _ = open_reader(write(tmp_path), np.arange(N) % 2)
    assert reader.row_names == BARCODES
    assert reader.feature_names == GENES
    X = reader.load()
    np.testing.assert_array_equal(X.toarray() if sp.issparse(X) else X, COUNTS)


@pytest.mark.parametrize("header", ["barcode,type\n", ""])
@pytest.mark.parametrize("write", FORMATS)
def test_labels_are_joined_by_row_name_in_any_order(write, header, tmp_path):
    order = np.random.default_rng(1).permutation(N)
    path = label_file(tmp_path, order, header)
    with warnings.catch_warnings(action="error", category=UserWarning):
        warnings.filterwarnings("ignore", "the cells hold")
        source = open_blocks(write(tmp_path), path)
    assert source.labels.array().tolist() == LABELS.tolist()


def test_a_tsv_joins_as_a_csv_does(tmp_path):
    path = label_file(tmp_path, range(N), "", "labels.tsv", "\t")
    _, labels = open_reader(mtx(tmp_path), path)
    assert labels.array().tolist() == LABELS.tolist()


def test_missing_and_extra_rows_are_reported_in_one_message(tmp_path):
    path = label_file(tmp_path, range(2, N))
    with open(path, "a") as file:
        file.write("ZZZ-1,T cell\n")
    with pytest.warns(UserWarning, match="joined by name") as caught:
        _, labels = open_reader(mtx(tmp_path), path)
    assert labels.array()[:3].tolist() == [None, None, LABELS[2]]
    (message,) = {str(w.message) for w in caught if w.category is UserWarning}
    assert "2 of 12 samples are not in the file (such as 'AAA0-1') and are unlabeled" in message
    assert "1 lines name samples that are not in the data (such as 'ZZZ-1')" in message


def test_a_sample_with_two_labels_and_a_line_of_three_cells_are_refused(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("AAA0-1,a\nAAA0-1,b\n")
    with pytest.raises(FileError, match="'AAA0-1' has two labels, 'a' and 'b'"):
        open_reader(mtx(tmp_path), str(path))
    path.write_text("AAA0-1,a,x\n")
    with pytest.raises(FileError, match=r"line 1 has 3 cells, but each line must hold two"):
        open_reader(tmp_path / "cells", str(path))


def test_one_label_per_line_may_contain_commas(tmp_path):
    (tmp_path / "y.txt").write_text("\n".join(LABELS))
    _, labels = open_reader(mtx(tmp_path), str(tmp_path / "y.txt"))
    assert labels.array().tolist() == LABELS.tolist()


def test_a_label_file_of_as_many_classes_as_samples_is_refused(tmp_path):
    np.save(tmp_path / "X.npy", COUNTS)
    path = label_file(tmp_path, range(N), "")
    message = (
        "two columns, with 12 names such as 'AAA11-1', but the samples of the data have no"
    )
    with pytest.raises(FileError, match=message):
        open_reader(tmp_path / "X.npy", path)
    np.save(tmp_path / "y.npy", BARCODES)
    with pytest.raises(FileError, match="12 classes for 12 samples"):
        open_reader(tmp_path / "X.npy", str(tmp_path / "y.npy"))


@pytest.mark.parametrize("write", [mtx, tenx_folder])
def test_a_column_is_refused_where_there_are_none_and_other_barcodes_are_shown(write, tmp_path):
    data = write(tmp_path)
    with pytest.raises(FileError, match=r"cell_type does not exist, and .* has no columns"):
        open_blocks(data, "cell_type")
    labels = tmp_path / "labels.csv"
    labels.write_text("".join(f"{code}_donor,T cell\n" for code in BARCODES))
    message = (
        r"two columns, but none of its 12 names is .* such as 'AAA11-1_donor', but the data .* "
        "'AAA11-1'"
    )
    with pytest.raises(FileError, match=message):
        open_blocks(data, str(labels))


@pytest.mark.parametrize("header", ["", "barcode,type\n"])
@pytest.mark.parametrize("n_lines", [60, 54])
@pytest.mark.parametrize("delimiter", [",", "\t", ";"])
def test_barcodes_that_do_not_match_are_not_read_as_classes(
    header, n_lines, delimiter, tmp_path
):
    # Two donors share a few barcodes once the suffix is cut off, so not all names differ.
    data = anndata.AnnData(
        np.eye(60, dtype=np.float32), pd.DataFrame(index=[f"AAA{i}_donor" for i in range(60)])
    )
    data.write_h5ad(tmp_path / "cells.h5ad")
    lines = [f"AAA{i % 50}-1{delimiter}T cell\n" for i in range(n_lines)]
    path = tmp_path / "labels.csv"
    path.write_text(header.replace(",", delimiter) + "".join(lines))
    message = f"none of its {n_lines} names is .*-1', but the data .*'AAA59_donor'"
    with pytest.raises(FileError, match=message):
        open_blocks(tmp_path / "cells.h5ad", str(path))


def test_a_column_of_the_data_goes_before_a_file_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "type").write_text("a\n" * N)
    _, labels = open_reader(h5ad(tmp_path), "type")
    assert labels.array().tolist() == LABELS.tolist()
    with pytest.raises(FileError, match="no obs column 'typo'; found: type"):
        open_reader(tmp_path / "cells.h5ad", "typo")


MARKS = ["nan", "NA", "n/a", "None", "Unknown", "UNASSIGNED", "", "T cell", "B cell"]
MARKS += ["T cell", "B cell", "B cell"]


def marked_csv(folder):
    frame = pd.DataFrame({"a": range(12), "y": MARKS})
    frame.to_csv(folder / "a.csv", index=False)
    return folder / "a.csv", "y"


def marked_h5ad(folder):
    data = anndata.AnnData(np.eye(12), pd.DataFrame({"y": pd.Categorical(MARKS)}))
    data.write_h5ad(folder / "a.h5ad")
    return folder / "a.h5ad", "y"


def marked_lines(folder):
    np.save(folder / "X.npy", np.eye(12))
    (folder / "y.txt").write_text("\n".join(MARKS))
    return folder / "X.npy", str(folder / "y.txt")


def marked_npz(folder):
    np.savez(folder / "a.npz", X=np.eye(12), y=MARKS)
    return folder / "a.npz", "y"


@pytest.mark.filterwarnings("ignore:Transforming to str index")
@pytest.mark.parametrize("write", [marked_csv, marked_h5ad, marked_lines, marked_npz])
def test_text_in_files_that_means_no_label_is_named_once(write, tmp_path):
    data, y = write(tmp_path)
    with pytest.warns(
        UserWarning, match=r"means 'no label': .*'Unknown' \(1 samples\)"
    ) as caught:
        _, labels = open_reader(data, y)
    named = [w for w in caught if "text that means" in str(w.message)]
    assert len(named) == 1
    assert "no_label in Python, --unlabeled-names on the command" in str(named[0].message)
    assert labels.array().tolist() == [None] * 7 + MARKS[7:]
    with pytest.warns(UserWarning, match=r"'T cell' \(2 samples\)"):
        _, labels = open_reader(data, y, no_label=["t cell"])
    assert sorted(labels.classes) == sorted(set(MARKS) - {"T cell", ""})


def test_labels_in_memory_keep_every_text():
    frame = pd.DataFrame({"a": range(12), "y": MARKS})
    data = anndata.AnnData(np.eye(12), pd.DataFrame({"y": MARKS}, index=list("abcdefghijkl")))
    for labels in (
        open_reader(frame, "y")[1],
        open_reader(data, "y")[1],
        open_reader(np.eye(12), MARKS)[1],
    ):
        assert {"nan", "Unknown", "UNASSIGNED"} <= set(labels.classes)


def test_gene_names_and_barcodes_of_another_number_are_reported(tmp_path):
    path = mtx(tmp_path)
    path.with_name("barcodes.tsv").write_text("AAA\n")
    with pytest.warns(UserWarning, match="barcodes.tsv has 1 lines, but 12 cells"):
        assert open_reader(path, LABELS)[0].row_names is None


def test_a_folder_of_something_else_is_an_unknown_format(tmp_path):
    with pytest.raises(ValueError, match=r"unknown format.*or a 10x folder"):
        open_reader(tmp_path, LABELS)


def test_quotes_around_a_label_with_commas_are_no_part_of_it(tmp_path):
    lines = tmp_path / "labels.txt"
    lines.write_text(
        "".join(f'"{label}"\n' if "," in label else f"{label}\n" for label in LABELS)
    )
    _, labels = open_reader(mtx(tmp_path), str(lines))
    assert labels.array().tolist() == LABELS.tolist()
