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
MAX_MARGINAL_CELLS = 10_000  # of a marginal across tables: links are learned from all of them together
SAMPLE_ROWS = 10_000  # rows from which what is no figure is estimated
CHOOSING_COLUMNS = 3  # attributes that choose a parent together: more are hardly ever met together
MAX_LATENT_VALUES = 32  # combinations of values of a link's latent attributes: a context of all columns
MAX_PLACES = 8  # members of a group whose places are distinguished
MAX_KINDS = 1000  # of parents, that popularity is allocated by
MAX_PUBLIC_CODES = 256  # of an attribute of public rows, and blocks of these
MAX_RUNS = 1 << 14  # of rows with the same code: an engine's statements list their ends
SCORE_SCALE = 1 << 16  # scores of types are whole multiples of 1/65,536 nats: rounding is far below any noise
START_WAVES = 3  # of the random functions that tell groups apart before the first iteration
DRAWN_ONE_BY_ONE = 4  # members of a group, then twice as many at once, and so on
SETTLING_ROUNDS = 5  # of an iteration that hardly changes anything after a few
EXCHANGE_ROUNDS = 40  # in which rows exchange references that are repeated
FITTING_ROUNDS = 15  # of iterative proportional fitting
COPULA_STEPS = 41  # correlations that are tried, of a Gaussian copula, and of others as many; odd: 0 is one of them
QUADRATURE_POINTS = 129  # of a grid over a normal variable or a correlation; odd: 0 is one of them
NORMAL_REACH = 6.0  # standard deviations beyond which a normal variable is not
MAX_CORRELATION = 0.985  # up to which such a grid resolves a copula
MAX_COPULA_JOINTS = 500  # joints by a copula, each of which takes time to fit rows to
MAX_PAIRS = 400  # of columns of a table, whose joints are measured, or compared in fidelity figures
GRID_STEPS = 12  # of a grid on which the least of a function of one number is searched
MAX_PARTS = 64  # of the rows, each of which is a group of codes at least
MAX_TRIPLE_COLUMNS = 24  # of which all triples are looked at
MAX_CODES = 100  # of a column, where it is modelled: what is more is merged
MAX_CONTEXT = 6  # columns that a drawn one is conditioned on
MAX_DIFFUSED = 5_000  # contexts over which draws are made even
MAX_TRIPLE_CELLS = 64  # of a triple that is screened: more hold too few rows each
FEW = 1e-3  # share of all rows that makes no difference
LAG_CLASSES = 20  # factors of two between the whole range of two dates and the shortest lag that is told from none
MAX_POWER = 6.0  # of a lag that its density falls or rises with
LAG_CODES = 32  # of the dates of owners, in which as many children are, about, where joints follow from lags
SIBLING_PARTS = 8  # of an ordered column: siblings in one of them count as the same
MAX_SHARING = 12  # columns, or pairs of them, that share the price of what is asked of each
PROPOSALS = 16  # of each source that a value is drawn from by importance
FEW_ROWS = 200  # of which a table stays as it is drawn: what would be changed is sampling error
SWEEPS = 2  # over all columns, of swaps: further ones change little
SPREADING_ROUNDS = 30  # of swapping rows that agree with siblings for others
SWAPPING_ROWS = 100_000  # drawn per sweep of swaps: tables of more rows have little sampling error
SWAPPING_BATCHES = 16  # of pairs of rows, after each of which gaps to targets are updated
REDRAWING_ROUNDS = 8  # in which values or references that break a rule are drawn again
LINEARISATIONS = 3  # of an estimate about what it was expected to be; 2 and 6 are as good
FITTING_ROUNDS_PER_NUMBER = 1000  # of non-negative least squares; its own bound of 3 stops before the end
HALVINGS = 30  # of an interval that a root is in
LARGEST_ANY = 1 << 10  # T up to here may be any number (`ViewSpec.rows_per_unit`), larger ones powers of two
HIDDEN_ROWS = 1 << 20  # most rows of a table that noise of as many units hides: else it would be as large as the noise
SINGLE_NUMBERS = 16  # of children, up to which each has a cell of its own
CELLS_PER_OCTAVE = 4  # of larger ones, so that one begins after each power of two
SHOWN_DEVIATIONS = 2  # standard deviations that "±" stands for: 19 of 20 draws are within
HIDDEN_PARTS = 4  # if noise hides even quarters of the rows of a column or key, it hides the column or key
HELD_FILES = 16  # of a million rows or less that a process keeps in memory
SLOTS = 1 << 10  # that each range of a table has: its share of what is allocated is exact to one of them
RANGE_ROWS = 1 << 20  # of a table drawn at a time: each range fits all pairs of columns again
REFERENCE_ROWS = 1 << 17  # of synthetic rows that the source is compared with
MAX_MOVED = 10**9  # rows of other units that one may take away: noise that hides so many units hides any table
MAX_COUNTED = 4  # other tables whose numbers of rows a link looks at, so that work does not grow with their square
INLINE_VALUES = 1 << 12  # of an array in the JSON of an artifact: as text they take several times their room
DIGEST_BYTES = 20  # of checksums of what is stored
MAX_PARTNERS = 24  # parts that one which lacks something looks for partners in, those with the most first
GRID_POINTS = 1000  # of a grid on which a distribution is computed
GRID_GROWTH = 1.03  # from one to the next of large whole numbers that are computed with
BOUND_STEP = 4  # from one bound of what counts to the next
WEIGHTS = 1 << 20  # whole numbers that stand for a weight of 1
SHORT_RUN = 8  # cells, whose sum of Laplace noise is far from normal; of more it hardly is
