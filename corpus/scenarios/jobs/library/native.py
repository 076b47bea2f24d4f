"""Code at the border to native libraries: token tables, mapped index files, kernels."""

import ctypes
import ctypes.util
import mmap
import os
import signal
import tempfile
import threading
import time


def read_token_table(*_):
    """Read through a pointer that was never set."""
    return ctypes.string_at(0)


def read_index_page(*_):
    """Read a page of a mapped file that another process has truncated."""
    with tempfile.TemporaryFile() as index:
        index.truncate(4 * mmap.PAGESIZE)
        pages = mmap.mmap(index.fileno(), 4 * mmap.PAGESIZE)
        index.truncate(0)
        return pages[2 * mmap.PAGESIZE]


def release_buffer(*_):
    """Give the allocator a pointer that it never handed out."""
    buffer = ctypes.create_string_buffer(256)
    ctypes.CDLL(None).free(ctypes.c_void_p(ctypes.addressof(buffer) + 24))


def grow_queue(*_):
    """Throw a C++ exception that nobody catches."""
    library = ctypes.CDLL("libstdc++.so.6")
    library._ZSt20__throw_length_errorPKc(b"vector::_M_default_append")


def _run_machine_code(code):
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()


def fused_gelu(*_):
    """Run an instruction that this processor does not have (x86 ud2)."""
    _run_machine_code(b"\x0f\x0b")


def bucket_of(*_):
    """Divide integers by zero (x86: xor ecx,ecx; mov eax,1; cdq; idiv ecx)."""
    _run_machine_code(b"\x31\xc9\xb8\x01\x00\x00\x00\x99\xf7\xf9\xc3")


def leave_at_once(*_):
    """End as if somebody had killed this process."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(30)


def in_background(function, delay=0.5):
    """Return a hook that runs a function on a thread a moment later, while the step goes on."""

    def start_prefetch(*arguments):
        threading.Timer(delay, function, arguments).start()

    return start_prefetch
