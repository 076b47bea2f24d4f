"""Score diagnoses against labelled cases."""
