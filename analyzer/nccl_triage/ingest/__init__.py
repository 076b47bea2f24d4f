"""From what the user names to numbered lines: files, folders, patterns and pipes.

``find_sources`` resolves the arguments, ``Source.open`` gives a decompressed stream, ``LineReader``
its lines, whatever the encoding.
"""
