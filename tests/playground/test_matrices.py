"""Matrices as people type them."""

import pytest

from transformer.playground.matrices import format_matrix, parse_matrices, parse_matrix


@pytest.mark.parametrize(
    ("text", "matrix"),
    [
        ("1 0\n0 1", [[1, 0], [0, 1]]),
        ("  1,0 ; -2.5, .5;", [[1, 0], [-2.5, 0.5]]),
        ("1\t2\r\n3  4\n\n", [[1, 2], [3, 4]]),
        ("−1e1", [[-10]]),
        ("100 -100 +1 1.", [[100, -100, 1, 1]]),
    ],
)
def test_rows_end_with_lines_or_semicolons_and_cells_with_spaces_or_commas(
    text: str, matrix: list[list[float]]
) -> None:
    assert parse_matrix("Q", text) == matrix


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (" \n;", "Q must have at least one row of numbers, but is empty."),
        ("1 x\n0 1", "Q, row 1, cell 2 must be a number, such as 0.5, but is “x”."),
        ("1 0\n0 nan", "Q, row 2, cell 2 must be a number, such as 0.5, but is “nan”."),
        ("1_0", "Q, row 1, cell 1 must be a number, such as 0.5, but is “1_0”."),
        ("٣", "Q, row 1, cell 1 must be a number, such as 0.5, but is “٣”."),
        ("1e999", "Q, row 1, cell 1 must lie between −100 and 100, but is 1e999."),
        ("0 -100.5", "Q, row 1, cell 2 must lie between −100 and 100, but is -100.5."),
        ("1 0\n0 1 2", "the rows of Q must be equally long, but row 1 has 2 cells and row 2 has 3."),
        ("1\n0 1", "the rows of Q must be equally long, but row 1 has 1 cell and row 2 has 2."),
        ("1 2 3 4 5", "Q must have 4 columns at most, but has 5."),
        ("1\n" * 7, "Q must have 6 rows at most, but has 7."),
        ("1" + " " * 400, "Q must have 400 characters at most, but has 401."),
    ],
)
def test_what_is_no_matrix_is_explained(text: str, sentence: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        parse_matrix("Q", text)
    assert str(caught.value) == sentence


def test_queries_as_wide_as_keys_and_a_value_for_each_key() -> None:
    with pytest.raises(ValueError, match=r"^Q and K must have equally many columns.*, but Q has 2 and K has 3\.$"):
        parse_matrices("1 0", "1 0 0", "1")
    with pytest.raises(ValueError, match=r"^K and V must have equally many rows.*, but K has 2 and V has 1\.$"):
        parse_matrices("1 0", "1 0; 0 1", "1")
    assert parse_matrices("1 0", "1 0; 0 1; 2 2", "1 2 3; 4 5 6; 7 8 9").value == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]


def test_what_is_written_reads_the_same_with_points_below_points() -> None:
    matrix = [[0.43, -10, 1], [0.8, 0, 100]]
    assert format_matrix(matrix) == "0.43  -10    1\n0.80    0  100"
    assert parse_matrix("V", format_matrix(matrix)) == matrix
