"""The place of the hardware verifier: plan, runner, worker, launchers. Nothing is built yet."""
