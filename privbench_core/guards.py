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
MAX_MARGINAL_CELLS = 10_000  # of a marginal across tables: links are learned from all of them together
SAMPLE_ROWS = 10_000  # rows from which what is no figure is estimated
CHOOSING_COLUMNS = 3  # attributes that choose a parent together: more are hardly ever met together
MAX_LATENT_VALUES = 32  # combinations of values of a link's latent attributes: a context of all columns
MAX_KINDS = 1000  # of parents, that popularity is allocated by
MAX_PUBLIC_CODES = 256  # of an attribute of public rows, and blocks of these
MAX_RUNS = 1 << 14  # of rows with the same code: an engine's statements list their ends
SCORE_SCALE = 1 << 16  # scores of types are whole multiples of 1/65,536 nats: rounding is far below any noise
START_WAVES = 3  # of the random functions that tell groups apart before the first iteration
DRAWN_ONE_BY_ONE = 4  # members of a group, then twice as many at once, and so on
SETTLING_ROUNDS = 5  # of an iteration that hardly changes anything after a few
EXCHANGE_ROUNDS = 40  # in which rows exchange references that are repeated
FITTING_ROUNDS = 15  # of iterative proportional fitting
REDRAWING_ROUNDS = 8  # in which values or references that break a rule are drawn again
