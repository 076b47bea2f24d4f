"""Where scan and merge run: this process, several local ones; a Ray cluster plugs in here."""
