"""Faults of the training job. Each hook of train.py looks up the chosen fault in its table; most do nothing.

A new fault is one function in a module of this package, registered for the hook at which it strikes. Faults strike on
``--fault-rank`` only (-1: on every rank), those of steps at ``--fault-step``.
"""

import importlib
import pkgutil

HOOKS = {}


def fault(hook, name):
    """Register a function as what a fault does at a hook."""

    def register(function):
        HOOKS.setdefault(hook, {})[name] = function
        return function

    return register


def _struck(options, rank):
    return options.fault_rank in (rank, -1)


def _call(hook, options, *arguments):
    function = HOOKS.get(hook, {}).get(options.fault)
    return function(options, *arguments) if function is not None else None


def before_process_group(options, rank):
    if _struck(options, rank):
        _call("before_process_group", options, rank)


def before_model(options, rank):
    """Every rank comes here: such phases are about what ranks do differently."""
    _call("before_model", options, rank)


def make_model(options, rank, model_class):
    made = _call("make_model", options, rank, model_class) if _struck(options, rank) else None
    return made if made is not None else model_class(hidden=options.hidden)


def on_sample(options, rank, index, sample):
    changed = _call("on_sample", options, rank, index, sample) if _struck(options, rank) else None
    return changed if changed is not None else sample


def number_of_steps(options, rank):
    changed = _call("number_of_steps", options, rank) if _struck(options, rank) else None
    return changed if changed is not None else options.steps


def before_step(options, rank, step, model, inputs):
    if step == options.fault_step and _struck(options, rank):
        return _call("before_step", options, rank, model, inputs)
    return None


def forward(options, rank, step, model, inputs):
    changed = None
    if step >= options.fault_step and _struck(options, rank):
        changed = _call("forward", options, model, inputs)
    return changed if changed is not None else model(inputs)


def on_loss(options, rank, step, loss):
    changed = _call("on_loss", options, step, loss) if step == options.fault_step and _struck(options, rank) else None
    return changed if changed is not None else loss


def on_gradients(options, rank, step, model):
    if step == options.fault_step and _struck(options, rank):
        _call("on_gradients", options, step, model)


def after_training(options, rank):
    return _call("after_training", options, rank) if _struck(options, rank) else None


for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
NAMES = sorted({name for table in HOOKS.values() for name in table})
