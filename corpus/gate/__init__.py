"""Gates for changes of the code: the same documents as another commit (``golden``), the scores of frozen cases."""
