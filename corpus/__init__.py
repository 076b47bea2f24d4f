"""The labelled corpus: recordings, re-enactments, and the scripts that made them."""
