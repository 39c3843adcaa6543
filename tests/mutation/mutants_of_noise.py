"""Too little noise, at the source and by claims of sensitivity that are too small."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

_AUDIT = "tests/unit/test_privacy_audit.py"
_BUDGET = "tests/unit/test_privacy_budget.py"
_LEDGER = "tests/unit/test_privacy_ledger.py"
_SIZES = "tests/unit/test_privacy_sizes.py"
_QUERIES = "tests/unit/test_privacy_queries.py"
_ACCOUNT = "tests/property/test_privacy_account.py"

NOISE = [
    Mutant(
        "half-laplace",
        "noise",
        "Laplace noise of half its scale",
        "privacy/noise.py",
        "return sensitivity.l1 / price.amount * _ROUND_UP",
        "return sensitivity.l1 / (2 * price.amount) * _ROUND_UP",
        (f"{_AUDIT}::test_laplace_noise_is_worth_its_epsilon",),
    ),
    Mutant(
        "laplace-of-l2",
        "noise",
        "Laplace noise by the L2 sensitivity",
        "privacy/noise.py",
        "return sensitivity.l1 / price.amount * _ROUND_UP",
        "return sensitivity.l2 / price.amount * _ROUND_UP",
        (f"{_QUERIES}::test_laplace_noise_follows_l1_and_gaussian_noise_l2",),
    ),
    Mutant(
        "half-gaussian",
        "noise",
        "Gaussian noise of half its deviation",
        "privacy/noise.py",
        "return sensitivity.l2 / math.sqrt(2 * price.amount) * _ROUND_UP",
        "return sensitivity.l2 / math.sqrt(8 * price.amount) * _ROUND_UP",
        (f"{_AUDIT}::test_gaussian_noise_is_worth_its_rho",),
    ),
    Mutant(
        "gaussian-of-epsilon",
        "noise",
        "ρ taken for ε²",
        "privacy/noise.py",
        "return sensitivity.l2 / math.sqrt(2 * price.amount) * _ROUND_UP",
        "return sensitivity.l2 / (2 * math.sqrt(price.amount)) * _ROUND_UP",
        (f"{_AUDIT}::test_gaussian_noise_is_worth_its_rho",),
    ),
    Mutant(
        "one-draw-for-all",
        "noise",
        "the same draw added to every number",
        "privacy/noise.py",
        "noisy = mechanism(np.asarray(exact, dtype=np.int64).ravel().tolist())",
        "noisy = np.asarray(exact, dtype=np.int64).ravel() + mechanism([0])[0]",
        (f"{_AUDIT}::test_laplace_noise_is_worth_its_epsilon",),
    ),
    Mutant(
        "noise-on-some",
        "noise",
        "no noise on counts of 0",
        "privacy/noise.py",
        "return np.asarray(noisy, dtype=np.int64).reshape(exact.shape)",
        "return np.where(exact == 0, 0, np.asarray(noisy, dtype=np.int64).reshape(exact.shape))",
        (f"{_AUDIT}::test_laplace_noise_is_worth_its_epsilon",),
    ),
    Mutant(
        "noise-above-zero",
        "noise",
        "noise that only adds",
        "privacy/noise.py",
        "return np.asarray(noisy, dtype=np.int64).reshape(exact.shape)",
        "return np.maximum(exact, np.asarray(noisy, dtype=np.int64).reshape(exact.shape))",
        (f"{_AUDIT}::test_laplace_noise_is_worth_its_epsilon",),
    ),
    Mutant(
        "half-the-noise-of-a-choice",
        "noise",
        "exponential mechanism at scale Δ/ε",
        "privacy/noise.py",
        "scale=2 * sensitivity / epsilon * _ROUND_UP)",
        "scale=sensitivity / epsilon * _ROUND_UP)",
        (f"{_AUDIT}::test_a_choice_is_worth_its_price",),
    ),
    Mutant(
        "choice-priced-wrong",
        "noise",
        "a choice under zCDP at ε = √(32ρ)",
        "privacy/noise.py",
        "math.sqrt(8 * price.amount)\n        space",
        "math.sqrt(32 * price.amount)\n        space",
        (f"{_AUDIT}::test_a_choice_is_worth_its_price",),
    ),
    Mutant(
        "choice-without-noise",
        "noise",
        "the exactly largest score is chosen",
        "privacy/noise.py",
        "return int(mechanism(np.asarray(scores, dtype=np.int64).tolist()))",
        "return int(np.argmax(scores))",
        (f"{_AUDIT}::test_a_choice_is_worth_its_price",),
    ),
    Mutant(
        "noise-of-no-budget",
        "noise",
        "a price of nothing is no error",
        "privacy/noise.py",
        "if price.amount <= 0:\n        raise InternalError(",
        "if price.amount <= 0:\n        return 0.0\n        raise InternalError(",
        (f"{_AUDIT}::test_noise_of_no_budget_is_refused",),
    ),
    Mutant(
        "seeded-noise-in-production",
        "noise",
        "a durable ledger takes whatever calls itself secure",
        "privacy/session.py",
        "if ledger.durable and type(noise) is not OpenDPNoise:",
        "if ledger.durable and not noise.secure:",
        (f"{_BUDGET}::test_a_durable_ledger_refuses_noise_that_can_be_seeded",),
    ),
]

DELTA = [
    Mutant(
        "threshold-of-one-key",
        "δ",
        "a threshold as if a unit touched one key",
        "privacy/noise.py",
        "math.log(touched / price.delta)",
        "math.log(1 / price.delta)",
        (f"{_AUDIT}::test_the_threshold_grows_with_the_keys_a_unit_touches",),
    ),
    Mutant(
        "threshold-without-count",
        "δ",
        "a threshold that forgets a key's own count",
        "privacy/noise.py",
        "return sensitivity.l2 + sigma * math.sqrt(",
        "return sigma * math.sqrt(",
        (f"{_AUDIT}::test_the_threshold_grows_with_the_keys_a_unit_touches",),
    ),
    Mutant(
        "no-threshold",
        "δ",
        "all keys with a noisy count above 0 are named",
        "privacy/noise.py",
        "strict=True) if count >= least}",
        "strict=True) if count > 0}",
        (f"{_AUDIT}::test_a_key_of_one_unit_is_named_with_at_most_delta",),
    ),
    Mutant(
        "threshold-on-exact-counts",
        "δ",
        "keys are named by their exact counts",
        "privacy/noise.py",
        "for key, count in zip(keys, noisy, strict=True) if count >= least}",
        "for key, count in zip(keys, noisy, strict=True) if exact[key] >= least}",
        (f"{_AUDIT}::test_a_threshold_for_half_the_noise_is_caught",),
    ),
    Mutant(
        "all-delta-to-rho",
        "δ",
        "the δ of thresholds is spent on ρ as well",
        "privacy/budget.py",
        "rho_for(self.epsilon, self.delta - self.threshold_delta), self.threshold_delta)",
        "rho_for(self.epsilon, self.delta), self.threshold_delta)",
        (f"{_BUDGET}::test_a_budget_splits_its_delta",),
    ),
    Mutant(
        "conversion-forgets-the-order",
        "δ",
        "δ of ρ at order α without the factor α",
        "privacy/budget.py",
        "(_ORDERS - 1) * (_ORDERS * rho - epsilon)",
        "(_ORDERS - 1) * (rho - epsilon)",
        (f"{_BUDGET}::test_conversion_of_rho_is_sound_and_tight",),
    ),
    Mutant(
        "pure-prices-cheap-in-rho",
        "δ",
        "ε-DP counted as ε²/8-zCDP",
        "privacy/budget.py",
        "else self.amount**2 / 2",
        "else self.amount**2 / 8",
        (f"{_LEDGER}::test_pure_entries_count_in_full_among_zcdp_ones",),
    ),
    Mutant(
        "replace-one-keeps-delta",
        "δ",
        "replacing a unit at 2δ",
        "privacy/budget.py",
        "min(self.delta * (1 + math.exp(min(self.epsilon, 700))), 1 - 1e-16)",
        "min(2 * self.delta, 1 - 1e-16)",
        (f"{_BUDGET}::test_a_budget_splits_its_delta",),
    ),
    Mutant(
        "discovery-charged-though-pure",
        "δ",
        "a list of values learned under pure ε-DP",
        "privacy/session.py",
        "if price.delta <= 0:\n            message",
        "if price.delta < 0:\n            message",
        (f"{_BUDGET}::test_a_list_of_values_is_not_learned_without_delta",),
    ),
    Mutant(
        "limit-without-delta",
        "δ",
        "a step may spend any δ",
        "privacy/budget.py",
        "<= limit.amount * ROUNDING_SLACK and self.delta <= limit.delta * ROUNDING_SLACK",
        "<= limit.amount * ROUNDING_SLACK",
        (f"{_BUDGET}::test_a_door_spends_its_reservation_and_no_more",),
    ),
    Mutant(
        "parts-spend-no-delta",
        "δ",
        "δ that parts of a split spend is not passed on",
        "privacy/filter.py",
        "max(0.0, after.delta - before.delta))",
        "0.0)",
        (f"{_ACCOUNT}::test_spending_is_the_dearest_path_and_never_beyond_the_limit",),
    ),
    Mutant(
        "lifetime-without-delta",
        "δ",
        "thresholds of a lifetime add up to any δ",
        "privacy/ledger/refresh_limits.py",
        "return rho_fits and self.delta <= lifetime.threshold_delta * ROUNDING_SLACK",
        "return rho_fits",
        (f"{_LEDGER}::test_thresholds_delta_is_limited_too",),
    ),
    Mutant(
        "thresholds-forgotten",
        "δ",
        "the ledger forgets the δ of earlier purchases",
        "privacy/ledger/totals.py",
        "            self.delta += delta\n",
        "",
        (f"{_LEDGER}::test_thresholds_delta_is_limited_too",),
    ),
    Mutant(
        "smaller-delta-forgets",
        "δ",
        "a lowered δ of the lifetime hides zCDP purchases",
        "privacy/ledger/ledger.py",
        "if not pure and not _covers(delta, total.delta):",
        "if False:",
        (f"{_LEDGER}::test_what_was_spent_is_never_understated_under_a_smaller_delta",),
    ),
]

_MOVES = "def moves(self, view: CodedView) -> tuple[float, float]:\n"
_CLAIMED = '        """L1 ≤ s; L2 ≤ L1."""\n        return float(view.stability), float(view.stability) ** 2'
_HALVED = _CLAIMED.replace("), float", ") / 2, float") + " / 4"

SENSITIVITY = [
    Mutant(
        "marginal-half",
        "sensitivity",
        "marginals move half of what they do",
        "privacy/queries.py",
        (
            "return joined(low, high, HALF)\n"
            "\n"
            "    def moves(self, view: CodedView) -> tuple[float, float]:\n"
            '        """Return the bound: L1 ≤ b + a; L2² ≤ b² + a²."""\n'
            "        return _moves(*view.shifts)"
        ),
        (
            "return joined(low, high, HALF)\n"
            "\n"
            "    def moves(self, view: CodedView) -> tuple[float, float]:\n"
            '        """Return the bound: L1 ≤ b + a; L2² ≤ b² + a²."""\n'
            "        return _moves(view.shifts[0] / 2, view.shifts[1] / 2)"
        ),
        (f"{_QUERIES}::test_a_unit_moves_a_query_as_far_as_it_says_and_no_further",),
    ),
    Mutant(
        "marginal-l2-not-squared",
        "sensitivity",
        "L2 in place of its square",
        "privacy/queries.py",
        "return lost + gained, lost**2 + gained**2",
        "return lost + gained, lost + gained",
        (f"{_QUERIES}::test_a_unit_moves_a_query_as_far_as_it_says_and_no_further",),
    ),
    Mutant(
        "distances-of-one",
        "sensitivity",
        "a sum of distances moves as far as one",
        "privacy/queries.py",
        "return s * sum(lengths), s**2 * sum(k * k for k in lengths)",
        "return s * len(lengths), s**2 * len(lengths)",
        (f"{_QUERIES}::test_a_unit_moves_a_query_as_far_as_it_says_and_no_further",),
    ),
    Mutant(
        "distances-l2",
        "sensitivity",
        "L2² of a sum of k distances as k",
        "privacy/queries.py",
        "s**2 * sum(k * k for k in lengths)",
        "s**2 * sum(lengths)",
        (f"{_QUERIES}::test_a_unit_moves_a_query_as_far_as_it_says_and_no_further",),
    ),
    Mutant(
        "signs-of-one",
        "sensitivity",
        "all products of signs move as far as one",
        "privacy/queries.py",
        "return s * len(self.subsets), s**2 * len(self.subsets)",
        "return s, s**2",
        (f"{_QUERIES}::test_a_unit_moves_a_query_as_far_as_it_says_and_no_further",),
    ),
    Mutant(
        "signs-lose-or-gain",
        "sensitivity",
        "L2² of a sum of signs as if what is lost and what is gained did not add up",
        "privacy/queries.py",
        "return s * len(self.subsets), s**2 * len(self.subsets)",
        "return s * len(self.subsets), _moves(*view.shifts)[1] * len(self.subsets)",
        (f"{_QUERIES}::test_a_unit_that_changes_signs_moves_their_sum_by_all_that_changes",),
    ),
    Mutant(
        "signs-wrap",
        "sensitivity",
        "sums of signs wrap around 64 bits",
        "privacy/queries.py",
        "return max(-LARGEST, min(difference, LARGEST))",
        "return (difference + 2**63) % 2**64 - 2**63",
        (f"{_SIZES}::test_sums_of_signs_do_not_wrap_around",),
    ),
    Mutant(
        "centres-without-grid",
        "sensitivity",
        "sums on a grid of 256 move as if on one of 1",
        "privacy/queries.py",
        "s = float(view.stability) * self.GRID",
        "s = float(view.stability)",
        (f"{_QUERIES}::test_a_unit_moves_a_query_as_far_as_it_says_and_no_further",),
    ),
    Mutant(
        "centres-forget-lists",
        "sensitivity",
        "one-hot coordinates move nothing",
        "privacy/queries.py",
        "return s * (1 + ordered / 2 + lists), s**2 * (1 + ordered / 4 + lists)",
        "return s * (1 + ordered / 2), s**2 * (1 + ordered / 4)",
        (f"{_QUERIES}::test_a_unit_moves_a_query_as_far_as_it_says_and_no_further",),
    ),
    Mutant(
        "centres-forget-ordered",
        "sensitivity",
        "ordered coordinates move nothing",
        "privacy/queries.py",
        "return s * (1 + ordered / 2 + lists), s**2 * (1 + ordered / 4 + lists)",
        "return s * (1 + lists), s**2 * (1 + lists)",
        (f"{_QUERIES}::test_a_unit_moves_a_query_as_far_as_it_says_and_no_further",),
    ),
    Mutant(
        "centres-off-the-middle",
        "sensitivity",
        "coordinates up to 1 that are taken for up to ½",
        "privacy/queries.py",
        "(np.arange(size) / max(size - 1, 1) - 0.5) * self.GRID",
        "(np.arange(size) / max(size - 1, 1)) * self.GRID",
        (f"{_QUERIES}::test_a_unit_moves_a_query_as_far_as_it_says_and_no_further",),
    ),
    Mutant(
        "parents-half",
        "sensitivity",
        "counts of references move half of what they do",
        "privacy/queries.py",
        (
            "return np.append(weighted_sums(self.group_of[sums.rows], sums.totals, groups), sums.none)\n"
            "\n"
            "    def moves(self, view: CodedView) -> tuple[float, float]:\n"
            '        """Return the bound: L1 ≤ b + a; L2² ≤ b² + a²."""\n'
            "        return _moves(*view.shifts)"
        ),
        (
            "return np.append(weighted_sums(self.group_of[sums.rows], sums.totals, groups), sums.none)\n"
            "\n"
            "    def moves(self, view: CodedView) -> tuple[float, float]:\n"
            '        """Return the bound: L1 ≤ b + a; L2² ≤ b² + a²."""\n'
            "        return _moves(view.shifts[0] / 2, view.shifts[1] / 2)"
        ),
        (f"{_QUERIES}::test_a_unit_moves_a_query_as_far_as_it_says_and_no_further",),
    ),
    Mutant(
        "ranks-half",
        "sensitivity",
        "sorted counts move half of what they do",
        "privacy/queries.py",
        "return _moves(lost, gained - view.lost)",
        "return _moves(lost / 2, (gained - view.lost) / 2)",
        (f"{_QUERIES}::test_a_unit_moves_a_query_as_far_as_it_says_and_no_further",),
    ),
    Mutant(
        "unnamed-values-unweighted",
        "sensitivity",
        "every row of a large unit counts in full among the values that are not named",
        "engines/memory/database.py",
        "return replace(rows, references=References(_unnamed(encoded, named), None))",
        "return replace(rows, weights=None, references=References(_unnamed(encoded, named), None))",
        ("tests/property/test_privacy_popularity.py::test_no_unit_moves_the_ranks_of_values_beyond_the_stability",),
    ),
    Mutant(
        "values-unweighted",
        "sensitivity",
        "a unit counts 1 for each of its values",
        "privacy/views.py",
        "number * math.isqrt(view.weight_scale**2 // k) for k",
        "number * view.weight_scale for k",
        ("tests/property/test_privacy_popularity.py::test_no_unit_moves_the_weights_of_values_beyond_the_stability",),
    ),
    Mutant(
        "named-values-of-any-type",
        "closed lists",
        "names that a list may leave out are taken as they come",
        "privacy/admission.py",
        "if type(named) is not tuple or any(type(name) is not str for name in named):",
        "if False:",
        ("tests/unit/test_privacy_admission.py::test_named_values_are_plain_texts",),
    ),
    Mutant(
        "joint-l1-is-the-largest",
        "sensitivity",
        "queries asked together cost what one does in L1",
        "privacy/curator.py",
        "Sensitivity(sum(l1 for l1, _ in moves),",
        "Sensitivity(max(l1 for l1, _ in moves),",
        (f"{_QUERIES}::test_queries_asked_together_add_up",),
    ),
    Mutant(
        "joint-l2-is-the-largest",
        "sensitivity",
        "queries asked together cost what one does in L2",
        "privacy/curator.py",
        "float(np.sqrt(sum(l2 for _, l2 in moves)))",
        "float(np.sqrt(max(l2 for _, l2 in moves)))",
        (f"{_QUERIES}::test_queries_asked_together_add_up",),
    ),
    Mutant(
        "choice-of-sums",
        "sensitivity",
        "a score that sums k distances moves as far as one",
        "privacy/curator.py",
        "sensitivity = self._view.stability * lengths.pop()",
        "sensitivity = self._view.stability",
        (f"{_QUERIES}::test_a_score_moves_by_all_of_its_distances",),
    ),
    Mutant(
        "choice-in-counts",
        "sensitivity",
        "scores in weight units that move as if in counts",
        "privacy/curator.py",
        "sensitivity = self._view.stability * lengths.pop()",
        "sensitivity = max(1, self._view.stability // self._view.weight_scale) * lengths.pop()",
        (f"{_QUERIES}::test_a_score_moves_by_all_of_its_distances",),
    ),
    Mutant(
        "references-wrap",
        "sensitivity",
        "large references wrap around 64 bits",
        "privacy/queries.py",
        "np.rint(np.clip(reference, -most, most) * view.weight_scale)",
        "np.rint(reference * view.weight_scale)",
        (f"{_SIZES}::test_distances_to_large_references_do_not_wrap_around",),
    ),
    Mutant(
        "distances-wrap",
        "sensitivity",
        "sums of distances wrap around 64 bits",
        "privacy/queries.py",
        "return np.array([min(each, LARGEST) for each in sums], dtype=np.int64)",
        "return np.array([each % 2**63 for each in sums], dtype=np.int64)",
        (f"{_SIZES}::test_distances_to_large_references_do_not_wrap_around",),
    ),
    Mutant(
        "sums-in-floats",
        "sensitivity",
        "sums of more than 53 bits in floats",
        "columns/exact_sums.py",
        "if len(cells) * heaviest < _FLOAT:",
        "if len(cells) >= 0:",
        ("tests/unit/test_counts.py::test_sums_per_cell_are_exact",),
    ),
    Mutant(
        "sums-wrap",
        "sensitivity",
        "sums of more than 62 bits wrap around",
        "columns/exact_sums.py",
        "return np.where(fits, (np.where(fits, carried, 0) << bits) + (low & ((1 << bits) - 1)), LARGEST)",
        "return (carried << bits) + (low & ((1 << bits) - 1))",
        (f"{_SIZES}::test_tuples_of_very_many_groups_are_exact_or_stop_at_the_largest",),
    ),
]
