"""From observations to a verdict: identity, order, facts, weights, culprits."""
