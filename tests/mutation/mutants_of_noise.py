"""Too little noise, at the source and by claims of sensitivity that are too small."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

_AUDIT = "tests/unit/test_privacy_audit.py"
_BUDGET = "tests/unit/test_privacy_budget.py"
_LEDGER = "tests/unit/test_privacy_ledger.py"
_SIZES = "tests/unit/test_privacy_sizes.py"
_QUERIES = "tests/unit/test_privacy_queries.py"
_ACCOUNT = "tests/property/test_privacy_account.py"
_POPULARITY = "tests/property/test_privacy_popularity.py"
_REPLAY = "tests/property/test_record_replay.py"

NOISE = [
    Mutant(
        "half-laplace", "noise", "Laplace noise of half its scale", "privacy/noise.py",
        "return sensitivity.l1 / price.amount * _ROUND_UP",
        "return sensitivity.l1 / (2 * price.amount) * _ROUND_UP",
        (_AUDIT,),
    ),
    Mutant(
        "laplace-of-l2", "noise", "Laplace noise by the L2 sensitivity", "privacy/noise.py",
        "return sensitivity.l1 / price.amount * _ROUND_UP",
        "return sensitivity.l2 / price.amount * _ROUND_UP",
        (_QUERIES,),
    ),
    Mutant(
        "half-gaussian", "noise", "Gaussian noise of half its deviation", "privacy/noise.py",
        "return sensitivity.l2 / math.sqrt(2 * price.amount) * _ROUND_UP",
        "return sensitivity.l2 / math.sqrt(8 * price.amount) * _ROUND_UP",
        (_AUDIT,),
    ),
    Mutant(
        "gaussian-of-epsilon", "noise", "ρ taken for ε²", "privacy/noise.py",
        "return sensitivity.l2 / math.sqrt(2 * price.amount) * _ROUND_UP",
        "return sensitivity.l2 / (2 * math.sqrt(price.amount)) * _ROUND_UP",
        (_AUDIT,),
    ),
    Mutant(
        "one-draw-for-all", "noise", "the same draw added to every number", "privacy/noise.py",
        "noisy = mechanism(np.asarray(exact, dtype=np.int64).ravel().tolist())",
        "noisy = np.asarray(exact, dtype=np.int64).ravel() + mechanism([0])[0]",
        (_AUDIT,),
    ),
    Mutant(
        "noise-on-some", "noise", "no noise on counts of 0", "privacy/noise.py",
        "return np.asarray(noisy, dtype=np.int64).reshape(exact.shape)",
        "return np.where(exact == 0, 0, np.asarray(noisy, dtype=np.int64).reshape(exact.shape))",
        (_AUDIT,),
    ),
    Mutant(
        "noise-above-zero", "noise", "noise that only adds", "privacy/noise.py",
        "return np.asarray(noisy, dtype=np.int64).reshape(exact.shape)",
        "return np.maximum(exact, np.asarray(noisy, dtype=np.int64).reshape(exact.shape))",
        (_AUDIT,),
    ),
    Mutant(
        "half-the-noise-of-a-choice", "noise", "exponential mechanism at scale Δ/ε", "privacy/noise.py",
        "scale=2 * sensitivity / epsilon * _ROUND_UP)",
        "scale=sensitivity / epsilon * _ROUND_UP)",
        (_AUDIT,),
    ),
    Mutant(
        "choice-priced-wrong", "noise", "a choice under zCDP at ε = √(32ρ)", "privacy/noise.py",
        "math.sqrt(8 * price.amount)\n        space",
        "math.sqrt(32 * price.amount)\n        space",
        (_AUDIT,),
    ),
    Mutant(
        "choice-without-noise", "noise", "the exactly largest score is chosen", "privacy/noise.py",
        "return int(mechanism(np.asarray(scores, dtype=np.int64).tolist()))",
        "return int(np.argmax(scores))",
        (_AUDIT,),
    ),
    Mutant(
        "noise-of-no-budget", "noise", "a price of nothing is no error", "privacy/noise.py",
        "if price.amount <= 0:\n        raise InternalError(",
        "if price.amount <= 0:\n        return 0.0\n        raise InternalError(",
        (_AUDIT,),
    ),
    Mutant(
        "seeded-noise-in-production", "noise", "a durable ledger takes whatever calls itself secure",
        "privacy/session.py",
        "if ledger.durable and type(noise) is not OpenDPNoise:",
        "if ledger.durable and not noise.secure:",
        (_BUDGET,),
    ),
]

DELTA = [
    Mutant(
        "threshold-of-one-key", "δ", "a threshold as if a unit touched one key", "privacy/noise.py",
        "math.log(touched / price.delta)", "math.log(1 / price.delta)",
        (_AUDIT,),
    ),
    Mutant(
        "threshold-without-count", "δ", "a threshold that forgets a key's own count", "privacy/noise.py",
        "return sensitivity.l1 + sigma * math.sqrt(", "return sigma * math.sqrt(",
        (_AUDIT,),
    ),
    Mutant(
        "no-threshold", "δ", "all keys with a noisy count above 0 are named", "privacy/noise.py",
        "strict=True) if count >= bar}", "strict=True) if count > 0}",
        (_AUDIT,),
    ),
    Mutant(
        "threshold-on-exact-counts", "δ", "keys are named by their exact counts", "privacy/noise.py",
        "for key, count in zip(keys, noisy, strict=True) if count >= bar}",
        "for key, count in zip(keys, noisy, strict=True) if exact[key] >= bar}",
        (_AUDIT,),
    ),
    Mutant(
        "all-delta-to-rho", "δ", "the δ of thresholds is spent on ρ as well", "privacy/budget.py",
        "rho_for(self.epsilon, self.delta - self.threshold_delta), self.threshold_delta)",
        "rho_for(self.epsilon, self.delta), self.threshold_delta)",
        (_BUDGET,),
    ),
    Mutant(
        "conversion-forgets-the-order", "δ", "δ of ρ at order α without the factor α", "privacy/budget.py",
        "(_ORDERS - 1) * (_ORDERS * rho - epsilon)", "(_ORDERS - 1) * (rho - epsilon)",
        (_BUDGET,),
    ),
    Mutant(
        "pure-prices-cheap-in-rho", "δ", "ε-DP counted as ε²/8-zCDP", "privacy/budget.py",
        "else self.amount**2 / 2", "else self.amount**2 / 8",
        (_LEDGER,),
    ),
    Mutant(
        "replace-one-keeps-delta", "δ", "replacing a unit at 2δ", "privacy/budget.py",
        "min(self.delta * (1 + math.exp(min(self.epsilon, 700))), 1 - 1e-16)", "min(2 * self.delta, 1 - 1e-16)",
        (_BUDGET,),
    ),
    Mutant(
        "discovery-charged-though-pure", "δ", "a list of values learned under pure ε-DP", "privacy/session.py",
        "if price.delta <= 0:\n            message", "if price.delta < 0:\n            message",
        (_BUDGET,),
    ),
    Mutant(
        "limit-without-delta", "δ", "a step may spend any δ", "privacy/budget.py",
        "same and self.amount <= limit.amount * slack and self.delta <= limit.delta * slack",
        "same and self.amount <= limit.amount * slack",
        (_BUDGET,),
    ),
    Mutant(
        "parts-spend-no-delta", "δ", "δ that parts of a split spend is not passed on", "privacy/filter.py",
        "max(0.0, after.delta - before.delta))", "0.0)",
        (_ACCOUNT,),
    ),
    Mutant(
        "lifetime-without-delta", "δ", "thresholds of a lifetime add up to any δ", "privacy/ledger/ledger.py",
        "return within and tally.delta + price.delta <= self.lifetime.threshold_delta * _SLACK",
        "return within",
        (_LEDGER,),
    ),
    Mutant(
        "thresholds-forgotten", "δ", "the ledger forgets the δ of earlier purchases", "privacy/ledger/totals.py",
        "            self.delta += delta\n", "",
        (_LEDGER,),
    ),
    Mutant(
        "smaller-delta-forgets", "δ", "a lowered δ of the lifetime hides zCDP purchases", "privacy/ledger/ledger.py",
        "if not pure and not _covers(delta, tally.delta):", "if False:",
        (_LEDGER,),
    ),
]

_MOVES = "def moves(self, view: CodedView) -> tuple[float, float]:\n"
_TWICE_CLAIMED = '        """L1 ≤ s; L2 ≤ L1."""\n        return float(view.stability), float(view.stability) ** 2'
_HALF_CLAIMED = '        """L1 ≤ s; L2 ≤ L1."""\n        return float(view.stability) / 2, float(view.stability) ** 2 / 4'

SENSITIVITY = [
    Mutant(
        "marginal-half", "sensitivity", "marginals move half of what they do", "privacy/queries.py",
        f"return joined(low, high, HALF)\n\n    {_MOVES}{_TWICE_CLAIMED}",
        f"return joined(low, high, HALF)\n\n    {_MOVES}{_HALF_CLAIMED}",
        (_QUERIES,),
    ),
    Mutant(
        "marginal-l2-not-squared", "sensitivity", "L2 in place of its square", "privacy/queries.py",
        f"return joined(low, high, HALF)\n\n    {_MOVES}{_TWICE_CLAIMED}",
        f"return joined(low, high, HALF)\n\n    {_MOVES}{_TWICE_CLAIMED.removesuffix(' ** 2')}",
        (_QUERIES,),
    ),
    Mutant(
        "distances-of-one", "sensitivity", "a sum of distances moves as far as one", "privacy/queries.py",
        "return s * sum(lengths), s**2 * sum(k * k for k in lengths)",
        "return s * len(lengths), s**2 * len(lengths)",
        (_QUERIES,),
    ),
    Mutant(
        "distances-l2", "sensitivity", "L2² of a sum of k distances as k", "privacy/queries.py",
        "s**2 * sum(k * k for k in lengths)", "s**2 * sum(lengths)",
        (_QUERIES,),
    ),
    Mutant(
        "centres-without-grid", "sensitivity", "sums on a grid of 256 move as if on one of 1", "privacy/queries.py",
        "s = float(view.stability) * self.GRID", "s = float(view.stability)",
        (_QUERIES,),
    ),
    Mutant(
        "centres-forget-lists", "sensitivity", "one-hot coordinates move nothing", "privacy/queries.py",
        "return s * (1 + ordered / 2 + lists), s**2 * (1 + ordered / 4 + lists)",
        "return s * (1 + ordered / 2), s**2 * (1 + ordered / 4)",
        (_QUERIES,),
    ),
    Mutant(
        "centres-forget-ordered", "sensitivity", "ordered coordinates move nothing", "privacy/queries.py",
        "return s * (1 + ordered / 2 + lists), s**2 * (1 + ordered / 4 + lists)",
        "return s * (1 + lists), s**2 * (1 + lists)",
        (_QUERIES,),
    ),
    Mutant(
        "centres-off-the-middle", "sensitivity", "coordinates up to 1 that are taken for up to ½", "privacy/queries.py",
        "(np.arange(size) / max(size - 1, 1) - 0.5) * self.GRID", "(np.arange(size) / max(size - 1, 1)) * self.GRID",
        (_QUERIES,),
    ),
    Mutant(
        "parents-half", "sensitivity", "counts of references move half of what they do", "privacy/queries.py",
        f"return weighted_sums(cells, weights, groups + 1)\n\n    {_MOVES}{_TWICE_CLAIMED}",
        f"return weighted_sums(cells, weights, groups + 1)\n\n    {_MOVES}{_HALF_CLAIMED}",
        (_QUERIES, _POPULARITY),
    ),
    Mutant(
        "ranks-half", "sensitivity", "sorted counts move half of what they do", "privacy/queries.py",
        f"len(totals))], prepend=0)\n\n    {_MOVES}{_TWICE_CLAIMED}",
        f"len(totals))], prepend=0)\n\n    {_MOVES}{_HALF_CLAIMED}",
        (_QUERIES, _POPULARITY),
    ),
    Mutant(
        "joint-l1-is-the-largest", "sensitivity", "queries asked together cost what one does in L1", "privacy/curator.py",
        "Sensitivity(sum(l1 for l1, _ in moves),", "Sensitivity(max(l1 for l1, _ in moves),",
        (_QUERIES,),
    ),
    Mutant(
        "joint-l2-is-the-largest", "sensitivity", "queries asked together cost what one does in L2", "privacy/curator.py",
        "float(np.sqrt(sum(l2 for _, l2 in moves)))", "float(np.sqrt(max(l2 for _, l2 in moves)))",
        (_QUERIES,),
    ),
    Mutant(
        "choice-of-sums", "sensitivity", "a score that sums k distances moves as far as one", "privacy/curator.py",
        "sensitivity = self._view.stability * lengths.pop()", "sensitivity = self._view.stability",
        (_QUERIES,),
    ),
    Mutant(
        "choice-in-counts", "sensitivity", "scores in weight units that move as if in counts", "privacy/curator.py",
        "sensitivity = self._view.stability * lengths.pop()",
        "sensitivity = max(1, self._view.stability // self._view.unit) * lengths.pop()",
        (_QUERIES,),
    ),
    Mutant(
        "references-wrap", "sensitivity", "large references wrap around 64 bits", "privacy/queries.py",
        "np.rint(np.clip(reference, -most, most) * view.unit)", "np.rint(reference * view.unit)",
        (_SIZES,),
    ),
    Mutant(
        "distances-wrap", "sensitivity", "sums of distances wrap around 64 bits", "privacy/queries.py",
        "return np.array([min(each, LARGEST) for each in sums], dtype=np.int64)",
        "return np.array([each % 2**63 for each in sums], dtype=np.int64)",
        (_SIZES,),
    ),
    Mutant(
        "sums-in-floats", "sensitivity", "sums of more than 53 bits in floats", "columns/exact_sums.py",
        "if len(cells) * heaviest < _FLOAT:", "if len(cells) >= 0:",
        (_SIZES,),
    ),
    Mutant(
        "sums-wrap", "sensitivity", "sums of more than 62 bits wrap around", "columns/exact_sums.py",
        "return np.where(fits, (np.where(fits, carried, 0) << bits) + (low & ((1 << bits) - 1)), LARGEST)",
        "return (carried << bits) + (low & ((1 << bits) - 1))",
        (_SIZES,),
    ),
]
