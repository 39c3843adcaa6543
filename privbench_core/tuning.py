"""Tuning: all numbers that the accuracy of a release depends on and that no argument fixes, in one frozen record.

Each field has its unit, its source (a paper, a bound, or a comparison that can be run again: ``benchmarks/README.md``,
*What mechanisms earn*), and the range in which figures do not change. What is fixed by an argument stands in the code.

**Flat range**: unless a field says otherwise, multiplied by 1.41 or by .71 alone it moves the mean of all figures of
chain, hospital, many_to_many (4 seeds) and web_shop (3) by less than 4% or two standard errors, and pairs, triples of
adult (2) by less than 2%, at ε = .8 and 3.2: ``python -m benchmarks compare --without 'FIELD*1.41' 'FIELD*0.71'``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import blake2b


@dataclass(frozen=True)
class Tuning:
    """Numbers that figures depend on; each comment says the unit, the source, and what is not flat around it."""

    size_share: float = 0.16
    """Share of a table's price for numbers of units by their number of rows, and as much for the number of rows; of a
    key's for how many references there are, and as much for their ranks; of public parents', for their attributes.
    Source: 8 seeds on chain, diamond, many_to_many, hospital, optional_keys, seasons at ε = .8 and 3.2, against shares
    that followed what was released: at .12 rows are 1.05 ± .05 and columns .95 ± .02 of before, at .2 rows .89 ± .05
    and columns 1.02 ± .02, all figures .98 and .97 ± .02: flat from .12 to .2 (hospital 1.10 ± .04 at .23). Where many
    units make rows precise anyhow (households), .16 is more than columns and pairs can spare."""

    cells: int = 256
    """Cells of a range that declares none, and four times those of lengths of text. Source: chosen by hand; cells are
    merged by noisy counts, which leave fewer."""

    learning_weights: tuple[float, float] = (0.43, 2.2)
    """Of what counting a column's values costs, what learning its range costs (.3 of all, where all columns have ranges
    to learn), or its list. Source: chosen by hand; a value of a list needs a count of about 7.1σ to be named, where
    counting one leaves an error of .8σ: were a value lost three times rarer than it is miscounted, errors balance at
    (7.1 / .8 / 3)^(2/3). On Adult, baseball players, sakila and chinook lists at 1.5 to 2.5 were alike, .43 worse."""

    list_shares: tuple[float, float, float] = (0.25, 0.3, 0.3)
    """Of a list's price, for the values that are not named; of the rest, for a first list of names (units then count
    for their other values alone: Swanberg et al. 2023); of the first, for their lengths and the rows that have them,
    where the rest is for how often each occurs. Source: chosen by hand. Flat range: no effect on these databases."""

    list_cells: float = 250 / 3
    """Counts whose noise weighs as much as all rows that are not counted, in the shape of a list: 25 numbers, and .3 as
    how far units with many rows have other values. Source: chosen by hand. Flat range: no effect on these databases."""

    detail_share: float = 0.2
    """Share of a price for details of ranges: parts of cells with many rows, and the unit of all values. Source: chosen
    among a few values on `benchmarks skew`; San Diego was the check that nothing is lost."""

    standing_out: float = 2.0
    """How many of the smallest spikes that show a cell must hold, beyond what its neighbours explain, to be cut; four
    times as many in all, if it has few values. Source: as for `detail_share`."""

    tail_span: float = 0.1
    """Share of a column's range from which on an interval beside a denser one is a tail, which is cut into pieces.
    Source: chosen by hand."""

    early_share: float = 0.4
    """Share of a price for a look that says how the rest is best spent: at cells, one row of each unit, and at how
    columns follow the number of rows of a unit. Source: chosen by hand. Flat range: at 1.41 hospital is 1.12 ± .04,
    else flat."""

    number_share: float = 0.03
    """Share of a table's price for its number of rows where units have one, which comes before all else: it says what
    would be noise and, under pure privacy, whether to look for dependences. Source: chosen by hand, so that it is known
    to ± 2σ of a column's counts, where there are ten columns."""

    truncation_bias: float = 0.1
    """How far rows that are not counted move a distribution, in total variation, beyond what is known of their units.
    Source: .1 against .05, chain at ε = 10,000, 2 seeds: numbers of children .29 of the error, all figures .86."""

    reference_bias: float = 0.3
    """How far references that are not counted, of units with many or beyond a bound, differ from the others, in total
    variation. Source: .3 against 1, flights and many_to_many at ε = 3.2, 3 seeds: joined pairs .95. Flat from .3 to .5
    (many_to_many 8 seeds, flights and tennis 3)."""

    significant: float = 3.0
    """Standard deviations of its noise beyond which a count is significant. Source: the usual three sigma."""

    cut_penalty: float = 5.0
    """Noise variances that a cut between segments of counts must save. Source: Adult, 2 to 8 are level."""

    bandwidth: float = 0.15
    """Standard deviation of the kernel that counts of a segment are smoothed with, as a share of its length. Source: a
    piecewise constant density (0) errs up to a third more."""

    shape_error: float = 0.3
    """How far, relatively, true numbers of groups are from any smooth distribution of sizes. Source: distributions of
    real sizes."""

    score_share: float = 0.1
    """Of the price of pairs of columns, for their dependence scores; signs get at most twice as much, as do the
    marginals of the parts of a sum node. Source: chosen between the .08 and .24 that were paid by need; with other
    changes together no figure moved by 3% (adult, dense, xor, chain, 3 seeds)."""

    clear: float = 0.05
    """Share that may be ignored: of all rows, the noise of a triple's score, and what a score must be beyond it; noise
    of a correlation; relative distance of counts from a copula; probability of an accident; bandwidth of smoothing.
    Source: chosen by hand; it stands for .01 (accidents), .05 and .1 (copulas)."""

    strong: float = 0.5
    """Share of all rows: largest noise of scores in which two columns that determine each other still stand out (their
    score is one minus the likeliest values). Source: chosen by hand, as .3 at 2.4 times the share. Flat range: no
    effect on these databases."""

    floor: float = 0.02
    """Share of what independence, or pairs, explain that every cell keeps, so that none is ruled out; of the noise,
    where that is less; correlation below which columns are taken to be independent. Source: chosen by hand."""

    triple_share: float = 0.02
    """Of a price, for screening triples and measuring those that stand out: the noise of all else grows by 1%. Source:
    without triples xor is 300 times as far off (`compare --without triples`)."""

    coarsening_loss: float = 4.0
    """Share of a dependence that is lost per square of the share of rows in a group of neighbours; half of it per share
    of rows in the merged codes of a list. Source: at 1, pairs of adult are 1.11 of before at ε = 3.2; at 4, 1.02 (2 to
    3 seeds)."""

    strength_exponent: float = 3.0
    """A coarsening loses (1 - strength)^-exponent times what it loses of a weak dependence, unless both columns have an
    order. Source: at 0 and twice the loss of lists, pairs of adult are 1.05 ± .01 of before at ε = 3.2, at 3 1.02 ± .00
    (2 and 6 seeds)."""

    degrees: float = 0.4
    """Share of a link's price for how many rows are linked to each. Source: chosen by hand."""

    first_look: float = 0.1
    """Share of a price for what decides how the rest is spent, or is told by few numbers: which marginals across tables
    are measured, marginals of a row's owner, whether rows have owners, lags, agreement of siblings. Source: PrivPetal's
    1:1:8 for R-scores, sizes and marginals."""

    most_noise: float = 0.1
    """Noise of a marginal across tables, as a share of its rows, beyond which its codes are merged or it is not
    measured. Source: chosen by hand."""

    other_code: float = 1e-3
    """How likely a date is of another code than the one drawn for it, per code and relative to that one. Source: models
    of codes place a row in a hundred before what it comes after, among dozens of codes."""

    alike_rows: int = 30
    """Rows of owners that are alike, about, among which rows are first exchanged between owners. Source: without such
    owners at all, joined pairs of chain and hospital converge 6 to 9% worse."""

    least_share: float = 0.1
    """Share of a table's rows below which the noise of their agreement with siblings has to be for it to be measured,
    and above which their lags have to differ from those of independent dates to be kept. Source: chosen by hand. Flat
    range: no effect on these databases."""

    own_lag_share: float = 0.05
    """Share of a table's price for how far dates are from others of their row. Source: chosen by hand. Flat range: no
    effect on these databases."""

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all fields: releases that other numbers led to are not taken for those of these."""
        return blake2b(repr(sorted(asdict(self).items())).encode(), digest_size=4).hexdigest()


TUNING = Tuning()
