"""Models of other sizes, as from another configuration file."""


def wider(options, rank, model_class):
    """Return a model whose layers are wider."""
    return model_class(hidden=options.hidden + 32)


def deeper(options, rank, model_class):
    """Return a model with one more layer."""
    return model_class(hidden=options.hidden, layers=3)


def larger_vocabulary(options, rank, model_class):
    """Return a model for another tokenizer."""
    return model_class(hidden=options.hidden, vocabulary=136)
