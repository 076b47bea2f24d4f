"""The rule engine: schema, loading, conditions, matching, checks."""
