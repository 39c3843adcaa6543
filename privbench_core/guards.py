"""Numerical guards: what keeps arithmetic finite, and time and memory bounded. None of them decides accuracy.

A number here may be changed by a factor of two without an effect that anyone would see, which is what distinguishes it
from `tuning`. Counts are in the unit that their names end with; shares are parts of a whole.
"""

TINY = 1e-300  # divisor in place of 0, where the numerator is 0 too
SMOOTHING = 1e-12  # share that keeps a cell possible
NEGLIGIBLE = 1e-9  # share, or number of rows, that stands for none where a positive number is needed
TOLERANCE = 1e-6  # relative difference below which two numbers are the same

BLOCK_ROWS = 1 << 16  # rows worked on at a time, so that what they need stays in the cache
MAX_CELLS = 1 << 20  # cells of a table held or fitted at a time
FEW = 1e-3  # share of all rows that makes no difference
SAMPLE_ROWS = 10_000  # rows from which what is no figure is estimated
LAG_CLASSES = 20  # factors of two between the whole range of two dates and the shortest lag that is told from none
MAX_POWER = 6.0  # of a lag that its density falls or rises with
LAG_CODES = 32  # of the dates of owners, in which as many children are, about, where joints follow from lags
MAX_PARTS = 64  # of the rows, each of which is a group of codes at least
SIBLING_PARTS = 8  # of an ordered column: siblings in one of them count as the same
MAX_SHARING = 12  # columns, or pairs of them, that share the price of what is asked of each
PROPOSALS = 16  # of each source that a value is drawn from by importance
FEW_ROWS = 200  # of which a table stays as it is drawn: what would be changed is sampling error
SWEEPS = 2  # over all columns, of swaps: further ones change little
SPREADING_ROUNDS = 30  # of swapping rows that agree with siblings for others
SWAPPING_ROWS = 100_000  # drawn per sweep of swaps: tables of more rows have little sampling error
SWAPPING_BATCHES = 16  # of pairs of rows, after each of which gaps to targets are updated
FITTING_ROUNDS = 15  # of iterative proportional fitting
SETTLING_ROUNDS = 5  # of an iteration that hardly changes anything after a few
REDRAWING_ROUNDS = 8  # in which values or references that break a rule are drawn again
