"""Numerical guards: what keeps arithmetic finite, and time and memory bounded. None of them decides accuracy.

A number here may be changed by a factor of two without an effect that anyone would see, which is what distinguishes it
from `tuning`. Counts are in the unit that their names end with; shares are parts of a whole.
"""

TINY = 1e-300  # divisor in place of 0, where the numerator is 0 too
SMOOTHING = 1e-12  # share that keeps a cell possible
NEGLIGIBLE = 1e-9  # share, or number of rows, that stands for none where a positive number is needed
TOLERANCE = 1e-6  # relative difference below which two numbers are the same
EXACT_FLOAT = 1 << 53  # up to which floats hold, and add up, whole numbers exactly
FINEST_CELL = 2.0**-24  # width of a cell of floats that is not cut further, as a share of the numbers in it
FLOAT_DUST = 2.0**-40  # relative error of a float that was computed in a few operations
LEAST_FLOAT = 1e-30  # smaller ones count as zero, and those above its inverse as that, where digits are looked at

BLOCK_ROWS = 1 << 16  # rows worked on at a time, so that what they need stays in the cache
MOST_COUNTERS = 1 << 26  # numbers of rows that are counted at a time, in half a gigabyte
SAMPLE_ROWS = 10_000  # rows from which what is no figure is estimated
MAX_PUBLIC_CODES = 256  # of an attribute of public rows, and blocks of these
RANK_BLOCKS = (4, 300)  # fewest and most blocks of ranks in which values that are not named are counted
SETTLING_ROUNDS = 5  # of an iteration that hardly changes anything after a few
FITTING_ROUNDS = 15  # of iterative proportional fitting
NORMAL_REACH = 6.0  # standard deviations beyond which a normal variable is not
MAX_CORRELATION = 0.985  # up to which such a grid resolves a copula
MAX_PAIRS = 400  # of columns of a table, whose joints are measured, or compared in fidelity figures
GRID_STEPS = 12  # of a grid on which the least of a function of one number is searched
MAX_PARTS = 64  # of the rows, each of which is a group of codes at least
MOST_CUT = 64  # cells of a column that one of these cuts: the heaviest
MOST_PARTS = 2048  # of all cells of a column that it cuts
WRITTEN_DATES = 1 << 24, 1 << 25  # the cell of the grid that holds dates of our times, written as 20201231
DOCUMENT_DEPTH = 8  # levels of a JSON document, and items of an array in it: what is deeper, or further back, is cut
DOCUMENT_LEAVES = 32  # scalars of a column of documents that are modelled
EXPECTED_LEAVES = 4  # that a column of documents is taken to have before its shapes are learned
MAX_CODES = 100  # of a column, where it is modelled: what is more is merged
FEW = 1e-3  # share of all rows that makes no difference, and of the largest rate that says nothing of slopes
SCREENED = 4000  # values drawn from released numbers, by which constraints that cannot hold are left out
MAX_SHARING = 12  # columns, or pairs of them, that share the price of what is asked of each
PROPOSALS = 16  # of each source that a value is drawn from by importance
FEW_ROWS = 200  # of which a table stays as it is drawn: what would be changed is sampling error
REDRAWING_ROUNDS = 8  # in which values or references that break a rule are drawn again
RANDOM_BITS = 28  # of a key that rows are mixed by: hardly ever the same for two rows of a group
LINEARISATIONS = 3  # of an estimate about what it was expected to be; 2 and 6 are as good
SPREADING_ROUNDS = 30  # of swapping rows that agree with siblings, or repeat a reference, for others
LARGEST_ANY = 1 << 10  # T up to here may be any number (`ViewSpec.rows_per_unit`), larger ones powers of two
HIDDEN_ROWS = 1 << 20  # most rows of a table that noise of as many units hides: else it would be as large as the noise
SINGLE_NUMBERS = 16  # of children, up to which each has a cell of its own
CELLS_PER_OCTAVE = 4  # of larger ones, so that one begins after each power of two
SHOWN_DEVIATIONS = 2.0  # standard deviations that "±" stands for: 19 of 20 draws are within
HIDDEN_PARTS = 4  # if noise hides even quarters of the rows of a column or key, it hides the column or key
RANGE_ROWS = 1 << 20  # of a table drawn, read, encoded or written at a time: each drawn range fits all pairs again
MAX_CELLS = RANGE_ROWS  # of a table, held or fitted at a time: as many as a range has rows
REFERENCE_ROWS = 1 << 17  # of synthetic rows that the source is compared with
DIGEST_BYTES = 20  # of checksums of what is stored
GRID_POINTS = 1000  # of a grid on which a distribution is computed
BOUND_STEP = 4  # from one bound of what counts to the next
