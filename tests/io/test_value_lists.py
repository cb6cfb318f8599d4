"""Price lists and group lists: columns by name, decimal commas, and unclear numbers."""

import re

import pytest

from semfs.io.value_lists import read_value_list
from semfs.selectors.rules.feature_values import feature_costs
from semfs.validation import ParameterError, ParameterTypeError

pd = pytest.importorskip("pandas")
pytest.importorskip("openpyxl")

KNOWN = {"D0", "D1", "D2"}


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Write a list and read it."""
    monkeypatch.chdir(tmp_path)

    def run(text, parameter="costs", known=KNOWN, name="list.csv"):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return read_value_list(parameter, tmp_path / name, known)

    return run


@pytest.mark.parametrize(
    "text, values",
    [
        ("Gerät;Preis\nD0;1022,91\nD1;929,41\n", [1022.91, 929.41]),
        ("D0;1022,91\nD1;929\n", [1022.91, 929.0]),
        ("D0,1022.91\nD1,929\n", [1022.91, 929.0]),
        ("D0\t1022,9\nD1\t1\n", [1022.9, 1.0]),
        ('device,price\nD0,"1022,91"\nD1,"3,5"\n', [1022.91, 3.5]),
        # one number decides what the others are
        ("D0;1.023\nD1;0.5\n", [1.023, 0.5]),
        ("D0;1,023\nD1;0,5\n", [1.023, 0.5]),
        # a comma between cells: decimals have points
        ("D0,1.125\nD1,2\n", [1.125, 2.0]),
    ],
)
def test_numbers_are_read_with_point_or_comma(text, values, read):
    assert list(read(text).values.values()) == values


@pytest.mark.parametrize(
    "text, message",
    [
        ("a;price\nD0;1.023\nD1;929\n", "line 2: '1.023' may be 1023 or 1.0230"),
        ("D0;2\nD1;1.023\n", "line 2: '1.023' may be 1023 or 1.0230"),
        ('D0,"1,023"\nD1,4\n', "line 1: '1,023' may be 1023 or 1.0230"),
        # prices of 929 and 1.021 are hardly meant
        ("D0,929\nD1,1.021\n", "line 2: '1.021' may be 1021 or 1.0210"),
        ("D0;1.022,91\nD1;929,41\n", "line 1 ('D0'): '1.022,91' has a thousands separator"),
        ("D0;1.022,91\nD1;1.020,69\n", "line 1 ('D0'): '1.022,91' has a thousands separator"),
        ("D0;929,41\nD1;1.023\n", "line 2 ('D1'): '1.023' has a thousands separator"),
        ('D0,"1,022.91"\nD1,4\n', "line 1 ('D0'): '1,022.91' has a thousands separator"),
        ("D0;12.5\nD1;1,5\n", "has a different decimal separator than the other numbers"),
        ("a;price\nD0;12.5 €\nD1;3\n", "line 2 ('D0'): '12.5 €' must be a number"),
        ("device,price\nD0,1022,91\nD1,929,4\n", "line 2 has 3 cells, but the header has 2"),
        ("D0,4\nD1,5\nD0,6\n", "line 3: 'D0' has two values in column 2, 4.0 and 6.0"),
        ("D0\nD1\n", "must have two columns"),
    ],
)
def test_numbers_that_may_mean_something_else_are_refused(text, message, read):
    with pytest.raises(ParameterError, match=re.escape(message)) as error:
        read(text)
    assert "list.csv" in str(error.value)


@pytest.mark.parametrize(
    "text, column",
    [
        ("device,qty,price\nD0,1,20\nD1,3,30\n", "column 'price'"),
        ("qty,Cost (EUR),device\n1,20,D0\n3,30,D1\n", "column 'Cost (EUR)'"),
        ("device,price net,price\nD0,1,20\nD1,3,30\n", "column 'price'"),
        ("device,amount\nD0,20\nD1,30\n", "column 'amount'"),
    ],
)
def test_prices_are_in_the_column_of_that_name(text, column, read):
    found = read(text)
    assert (found.column, found.values) == (column, {"D0": 20.0, "D1": 30.0})


def test_groups_are_in_the_column_of_that_name(read):
    text = "feature,place,device\nD0,hall A,X1\nD1,hall A,X1\nD2,,\n"
    found = read(text, "groups")
    assert found.values == {"D0": "X1", "D1": "X1"}
    wanted = "column 'device' of list.csv is used: 3 rows (1 without a value), 1 group."
    assert found.summary("list.csv") == wanted


@pytest.mark.parametrize(
    "text, columns",
    [
        ("device,qty,amount\nD0,1,20\n", "column 'qty', column 'amount'"),
        ("device,price net,price gross\nD0,1,20\n", "column 'price net', column 'price gross'"),
        ("D0,1,20\nD1,2,30\n", "column 2, column 3"),
    ],
)
def test_one_of_several_columns_is_never_guessed(text, columns, read):
    wanted = f"several columns besides the names ({columns})"
    with pytest.raises(ParameterError, match=re.escape(wanted)) as error:
        read(text)
    assert "Call it 'price' in the header" in str(error.value)


def test_a_first_row_with_a_number_is_not_taken_for_a_header(read):
    found = read("D9,7\nD0,20\n")
    assert found.values == {"D9": 7.0, "D0": 20.0}
    assert found.summary("list.csv") == "column 2 of list.csv is used: 2 rows, 7 to 20."


@pytest.mark.parametrize("ending", [".xlsx", ".parquet", ".feather"])
def test_lists_are_read_from_other_tables(ending, read, tmp_path):
    frame = pd.DataFrame({"device": [0, 1], "pieces": [1, 3], "price": [1022.91, None]})
    path = tmp_path / f"list{ending}"
    write = {
        ".xlsx": frame.to_excel,
        ".parquet": frame.to_parquet,
        ".feather": frame.to_feather,
    }
    write[ending](path, **({"index": False} if ending == ".xlsx" else {}))
    # Excel stores the number of a device as 0.0 in a column with gaps
    assert read_value_list("costs", path, {"0", "1"}).values == {"0": 1022.91}


def test_a_list_in_another_encoding_is_named(tmp_path):
    path = tmp_path / "preise.csv"
    path.write_bytes("Gerät;Preis\nD0;3\n".encode("cp1252"))
    with pytest.raises(ValueError, match=r"preise\.csv is not a readable .* UTF-8"):
        read_value_list("costs", path, KNOWN)


def test_costs_in_python_that_are_text_name_the_first_one():
    with pytest.raises(ParameterTypeError, match=r"got '1022,91' for 'b'.*decimal=\",\""):
        feature_costs({"a": 3, "b": "1022,91"}, 2, ["a", "b"])
