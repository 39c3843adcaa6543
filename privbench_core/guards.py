"""Numerical guards: what keeps arithmetic finite, and time and memory bounded. None of them decides accuracy.

A number here may be changed by a factor of two without an effect that anyone would see, which is what distinguishes it
from `tuning`. Counts are in the unit that their names end with; shares are parts of a whole.
"""

TINY = 1e-300  # divisor in place of 0, where the numerator is 0 too
SMOOTHING = 1e-12  # share that keeps a cell possible
NEGLIGIBLE = 1e-9  # share, or number of rows, that stands for none where a positive number is needed
TOLERANCE = 1e-6  # relative difference below which two numbers are the same
RARE_RATE = 1e-3  # of the largest: rarer things may not be there at all, and say nothing of slopes

BLOCK_ROWS = 1 << 16  # rows worked on at a time, so that what they need stays in the cache
MAX_CELLS = 1 << 20  # cells of a table held or fitted at a time
SAMPLE_ROWS = 10_000  # rows from which what is no figure is estimated
FITTING_ROUNDS = 15  # of iterative proportional fitting
SETTLING_ROUNDS = 5  # of an iteration that hardly changes anything after a few
COPULA_STEPS = 41  # correlations that are tried, of a Gaussian copula, and of others as many; odd: 0 is one of them
QUADRATURE_POINTS = 129  # of a grid over a normal variable or a correlation; odd: 0 is one of them
NORMAL_REACH = 6.0  # standard deviations beyond which a normal variable is not
MAX_CORRELATION = 0.985  # up to which such a grid resolves a copula
MAX_COPULA_JOINTS = 500  # joints by a copula, each of which takes time to fit rows to
MAX_PAIRS = 400  # joints measured of a table
GRID_STEPS = 12  # of a grid on which the least of a function of one number is searched
MAX_PARTS = 64  # of the rows, each of which is a group of codes at least
MAX_FACTOR = 8.0  # by which a round brings noisy counts nearer to their margins
MAX_TRIPLE_COLUMNS = 24  # of which all triples are looked at
MAX_CODES = 100  # of a column, where it is modelled: what is more is merged
MAX_CONTEXT = 6  # columns that a drawn one is conditioned on
MAX_DIFFUSED = 5_000  # contexts over which draws are made even
MAX_TRIPLE_CELLS = 64  # of a triple that is screened: more hold too few rows each
REDRAWING_ROUNDS = 8  # in which values or references that break a rule are drawn again
