"""`ReadPlan`: the size of blocks, and whether data are read in one pass or in a few."""

from __future__ import annotations

from dataclasses import dataclass

from semfs.io.reader import BLOCK_BYTES, MEMORY, RING

# A block has at least so many bytes, however little memory there is: smaller ones are slow.
MIN_BLOCK_BYTES = 2**20
# A block for products is so many times as long as one for sums: BLAS gains from it.
PRODUCT_BLOCKS = 2
# A part of a sparse matrix has so many times the bytes of a dense block: it is unpacked by
# one thread, and short parts would leave threads waiting.
PART_BLOCKS = 4
# At most so many parts are in memory at once, one for each thread that unpacks them; with more
# of them a pass takes as long.
MAX_PARTS_AT_ONCE = 5
# With more features per pass than this, X'X takes longer than reading the data once more
# (measured on files of 10⁵ × 4,096 and 10⁶ × 784).
FEATURES_PER_PASS = 128
# A pass fetches 32 to 128 Gram columns, of which about half are selected.
SELECTED_PER_PASS = 64
# Passes of any fit that does not form the matrix: class means, and two that cannot be avoided.
MIN_PASSES = 3
# Data that take at most this share of the memory are loaded.
LOADED_SHARE = 1 / 2


@dataclass(frozen=True)
class ReadPlan:
    """Memory and block sizes, as the user set them.

    Examples
    --------
    >>> plan = ReadPlan(memory=512 * 2**20)
    >>> plan.rows_per_block(1000, row_bytes=4000, matrix=False)
    4194
    >>> plan.forms_matrix(100, n_rows=10**6, n_select=20, sparse=False)
    True
    """

    memory: int = MEMORY  # bytes for blocks and for the scatter matrix
    block_bytes: int = BLOCK_BYTES  # bytes of a dense block
    block_rows: int | None = None  # rows of a block; None: as many as fit
    passes: str = "auto"  # "one" forms the d × d matrix, "few" does not, "auto" decides

    @property
    def part_bytes(self) -> int:
        """The bytes of a part of a sparse matrix, so that all parts in use fit into memory."""
        room = max(self.memory // MAX_PARTS_AT_ONCE, MIN_BLOCK_BYTES)
        return min(PART_BLOCKS * self.block_bytes, room)

    def rows_per_block(
        self,
        n_features: int,
        *,
        row_bytes: int,
        chunk_rows: int = 1,
        matrix: bool,
    ) -> int:
        """Return the rows of a block, with or without a scatter matrix beside it.

        If whole chunks of ``chunk_rows`` rows fit, blocks end where chunks end.
        """
        if self.block_rows is not None:
            return self.block_rows
        matrix_bytes = 8 * n_features**2 if matrix else 0
        wanted = PRODUCT_BLOCKS * self.block_bytes if matrix else self.block_bytes
        # blocks are read ahead, and each may be copied
        room = max(0, self.memory - matrix_bytes) // (2 * RING)
        rows = min(wanted, max(room, MIN_BLOCK_BYTES)) // row_bytes
        rows = max(1, int(rows))
        if rows >= chunk_rows:
            return rows // chunk_rows * chunk_rows
        return chunk_rows if chunk_rows * row_bytes <= room else rows

    def forms_matrix(
        self,
        n_features: int,
        *,
        n_rows: int | None,
        n_select: int | None,
        sparse: bool,
        rereadable: bool = True,
    ) -> bool:
        """Return whether to form the d × d matrix, because it is necessary or faster.

        ``n_select`` is the number of features to select, or None if the solver needs the
        matrix.
        """
        if n_select is None or not rereadable or self.passes == "one":
            return True
        if self.passes == "few" or sparse or not self.has_room_for_matrix(n_features):
            return False
        if n_rows is not None and n_rows < n_features:
            return False
        n_fetching = -(-min(n_select, n_features) // SELECTED_PER_PASS)
        return n_features <= FEATURES_PER_PASS * (MIN_PASSES + n_fetching)

    def has_room_for_matrix(self, n_features: int) -> bool:
        """Return whether a d × d matrix of float64 fits into memory."""
        return 8 * n_features**2 <= self.memory

    def loads(self, n_rows: int | None, row_bytes: int) -> bool:
        """Return whether the data are so small that they should be loaded."""
        if n_rows is None or self.block_rows is not None or self.passes != "auto":
            return False
        return n_rows * row_bytes <= LOADED_SHARE * self.memory
