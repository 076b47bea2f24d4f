"""What happened, determined once per input before any cause is weighed: ranks, order, runs, survived failures, outcome."""
