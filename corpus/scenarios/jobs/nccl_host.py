"""Set up NCCL communicators and check them before training, through ctypes as a serving engine's wrapper does."""

import argparse
import ctypes
import logging
import os
import socket
import sys
import threading
import time
import traceback

RANK = int(os.environ["RANK"])
WORLD_SIZE = int(os.environ["WORLD_SIZE"])
LOCAL_RANK = int(os.environ.get("LOCAL_RANK", "0"))
UNIQUE_ID_BYTES = 128
FLOAT32, SUM = 7, 0
IN_PROGRESS = 7
NOT_READY = 600
log = logging.getLogger("comm")


class UniqueId(ctypes.Structure):
    """What rank 0 gives to all others so that they find each other."""

    _fields_ = [("internal", ctypes.c_byte * UNIQUE_ID_BYTES)]


class NcclError(RuntimeError):
    """A call of NCCL failed."""


class Nccl:
    """The few calls of libnccl.so.2 that are needed here."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.ncclGetErrorString.restype = ctypes.c_char_p
        self.library.ncclGetLastError.restype = ctypes.c_char_p

    def version(self):
        """Return the version of the library."""
        number = ctypes.c_int()
        self.library.ncclGetVersion(ctypes.byref(number))
        return f"{number.value // 10000}.{number.value // 100 % 100}.{number.value % 100}"

    def check(self, result, what):
        """Raise NcclError unless the call succeeded."""
        if result == 0:
            return
        text = self.library.ncclGetErrorString(result).decode()
        last = self.library.ncclGetLastError(None)
        message = f"NCCL error in {what}: {text} (NCCL version {self.version()})"
        if last:
            message += f"\nLast error:\n{last.decode().strip()}"
        raise NcclError(message)

    def unique_id(self):
        """Return a new id."""
        made = UniqueId()
        self.check(self.library.ncclGetUniqueId(ctypes.byref(made)), "ncclGetUniqueId")
        return made

    def init_rank(self, world_size, identity, rank, device, timeout):
        """Join a communicator; a call that does not return in time is given up."""
        communicator = ctypes.c_void_p()
        results = []

        def join():
            if device >= 0:
                use_device(device)
            results.append(self.library.ncclCommInitRank(ctypes.byref(communicator), world_size, identity, rank))

        thread = threading.Thread(target=join, daemon=True)
        thread.start()
        thread.join(timeout)
        if not results:
            raise TimeoutError(f"ncclCommInitRank (rank {rank} of {world_size}) did not return within {timeout:.0f} s")
        self.check(results[0], "ncclCommInitRank")
        return communicator

    def async_error(self, communicator):
        """Return what went wrong in the background, as a number."""
        result = ctypes.c_int()
        self.library.ncclCommGetAsyncError(communicator, ctypes.byref(result))
        return result.value

    def all_reduce(self, communicator, buffer, count, stream):
        """Enqueue an all-reduce."""
        result = self.library.ncclAllReduce(buffer, buffer, ctypes.c_size_t(count), FLOAT32, SUM, communicator, stream)
        self.check(result, "ncclAllReduce")

    def abort(self, communicator):
        """Give a communicator up."""
        self.library.ncclCommAbort(communicator)

    def destroy(self, communicator):
        """Free a communicator."""
        self.check(self.library.ncclCommDestroy(communicator), "ncclCommDestroy")


class CudaError(RuntimeError):
    """A call of the CUDA driver failed."""


def cuda(name, *arguments):
    """Call a function of the CUDA driver."""
    driver = ctypes.CDLL("libcuda.so.1")
    result = getattr(driver, name)(*arguments)
    if result not in (0, NOT_READY):
        error, text = ctypes.c_char_p(), ctypes.c_char_p()
        driver.cuGetErrorName(result, ctypes.byref(error))
        driver.cuGetErrorString(result, ctypes.byref(text))
        raise CudaError(f"{name} failed: {error.value.decode()} ({text.value.decode()})")
    return result


def use_device(device):
    """Make a device the calling thread's current one."""
    context = ctypes.c_void_p()
    cuda("cuInit", 0)
    cuda("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    cuda("cuCtxSetCurrent", context)


def free_memory(device):
    """Return what is left of a device's memory, in words."""
    if device < 0:
        return ""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    cuda("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return f", {free.value >> 20} of {total.value >> 20} MiB of device memory free"


def exchange(identity, name, port, timeout):
    """Give the id of rank 0 to all ranks over a plain TCP connection."""
    address = (os.environ.get("MASTER_ADDR", "127.0.0.1"), port)
    deadline = time.monotonic() + timeout
    if RANK == 0:
        with socket.create_server(("", port)) as server:
            missing = set(range(1, WORLD_SIZE))
            while missing:
                server.settimeout(max(0.1, deadline - time.monotonic()))
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    ranks = ", ".join(map(str, sorted(missing)))
                    raise TimeoutError(f"{name}: ranks {ranks} did not ask for the id within {timeout:.0f} s") from None
                with connection:
                    missing.discard(int(connection.recv(8)))
                    connection.sendall(bytes(identity))
        return identity
    while True:
        try:
            with socket.create_connection(address, timeout=5) as connection:
                connection.sendall(b"%8d" % RANK)
                data = b""
                while len(data) < UNIQUE_ID_BYTES:
                    data += connection.recv(UNIQUE_ID_BYTES)
                return UniqueId.from_buffer_copy(data)
        except OSError as error:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name}: no id from {address[0]}:{port} within {timeout:.0f} s: {error}") from error
            time.sleep(0.2)


def wait(nccl, communicator, stream, what, timeout):
    """Wait for a stream like a watchdog: an error of NCCL or of the device ends it, and so does the time."""
    started = time.monotonic()
    while cuda("cuStreamQuery", stream) == NOT_READY:
        error = nccl.async_error(communicator)
        if error not in (0, IN_PROGRESS):
            log.error("%s: asynchronous error %d, aborting the communicator", what, error)
            nccl.abort(communicator)
            nccl.check(error, what)
        if time.monotonic() - started > timeout:
            log.error("%s did not finish within %.0f s, aborting the communicator", what, timeout)
            nccl.abort(communicator)
            raise TimeoutError(f"{what} timed out on rank {RANK}")
        time.sleep(0.01)


def run(options):
    """Make the communicators, use the last one if that is wanted, and free them."""
    nccl = Nccl(os.environ["NCCL_LIBRARY"])
    log.info("NCCL %s, pid %d, host %s, device %d", nccl.version(), os.getpid(), socket.gethostname(), options.device)
    if options.device >= 0:
        use_device(options.device)
    communicators = []
    for index, name in enumerate(options.groups.split(",")):
        identity = nccl.unique_id() if RANK == 0 else None
        port = int(os.environ.get("MASTER_PORT", "29500")) + 1 + index
        identity = exchange(identity, f"group {name}", port, options.timeout)
        if RANK in options.late:
            time.sleep(options.pause)
        size = options.size or WORLD_SIZE
        communicators.append(nccl.init_rank(size, identity, options.rank, options.device, options.timeout))
        log.info("group %s ready, %d ranks%s", name, WORLD_SIZE, free_memory(options.device))
        time.sleep(options.between)
    if options.collective:
        stream, buffer = ctypes.c_void_p(), ctypes.c_void_p()
        cuda("cuStreamCreate", ctypes.byref(stream), 1)
        count = options.mib * 1024 * 256
        cuda("cuMemAlloc_v2", ctypes.byref(buffer), ctypes.c_size_t(4 * count))
        what = f"all_reduce of {count} elements"
        nccl.all_reduce(communicators[-1], buffer, count, stream)
        log.info("%s enqueued", what)
        wait(nccl, communicators[-1], stream, what, options.timeout)
    for communicator in communicators:
        nccl.destroy(communicator)
    log.info("communicator check passed")


def parse_arguments():
    """Return the command line's options."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--groups", default="world", help="names of the communicators, each over all ranks")
    parser.add_argument("--device", type=int, default=LOCAL_RANK, help="-1: whichever NCCL takes")
    parser.add_argument("--rank", type=int, default=RANK, help="rank in the communicators")
    parser.add_argument("--size", type=int, default=0, help="size of the communicators")
    parser.add_argument("--collective", action="store_true", help="all-reduce once")
    parser.add_argument("--mib", type=int, default=4, help="MiB of the all-reduce")
    parser.add_argument("--timeout", type=float, default=20.0)
    parser.add_argument("--between", type=float, default=0.0, help="seconds between communicators")
    parser.add_argument("--late", type=lambda text: [int(rank) for rank in text.split(",")], default=[])
    parser.add_argument("--pause", type=float, default=0.0)
    return parser.parse_args()


if __name__ == "__main__":
    options = parse_arguments()
    logging.basicConfig(
        level=logging.INFO,
        format=f"%(asctime)s %(levelname)s %(name)s [rank{RANK}] %(message)s",
        stream=sys.stdout,
    )
    try:
        run(options)
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        # Threads may still be inside NCCL, and the interpreter's end would pull the library away under them.
        os._exit(1)
