"""Styles in which programs write their consoles; each is a logger of one rank."""

import datetime
import json
import logging
import sys
import traceback

CONSOLES = {}


def console(name):
    def register(function):
        CONSOLES[name] = function
        return function

    return register


def make(name, rank):
    return CONSOLES[name](rank)


def _logger(formatter, stream=sys.stderr):
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    logger = logging.getLogger("work")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
    return logger


@console("plain")
def plain(rank):
    return _logger(logging.Formatter(f"%(asctime)s work %(levelname)s r{rank} %(message)s"))


@console("bare")
def bare(rank):
    """Nothing says which rank a line is of, and the first one alone is chatty."""
    logger = _logger(logging.Formatter("%(message)s"), sys.stdout)
    logger.setLevel(logging.INFO if rank == 0 else logging.WARNING)
    return logger


@console("glog")
def glog(rank):
    return _logger(
        logging.Formatter(
            "%(levelname).1s%(asctime)s.%(msecs)03d000 %(process)7d %(filename)s:%(lineno)d] %(message)s",
            "%m%d %H:%M:%S",
        )
    )


@console("pipes")
def pipes(rank):
    return _logger(
        logging.Formatter(
            f"%(asctime)s.%(msecs)03d | %(levelname)-8s | %(module)s:%(funcName)s:%(lineno)d - rank={rank} %(message)s",
            "%Y-%m-%d %H:%M:%S",
        )
    )


class _Json(logging.Formatter):
    def __init__(self, rank):
        super().__init__()
        self.rank = rank

    def format(self, record):
        moment = datetime.datetime.fromtimestamp(record.created, datetime.timezone.utc)
        entry = {
            "timestamp": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "rank": self.rank,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = "".join(traceback.format_exception(*record.exc_info))
        return json.dumps(entry)


@console("json")
def json_lines(rank):
    logger = _logger(_Json(rank))

    def log_uncaught(kind, value, trace):
        logger.error("uncaught exception", exc_info=(kind, value, trace))

    sys.excepthook = log_uncaught
    return logger
