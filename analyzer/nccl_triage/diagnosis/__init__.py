"""From observations to a verdict: facts are derived, causes weighed and culprits found."""
