"""What was learnt of form and place: how a run ended, and which of its lines tell why. Applied without numpy."""
