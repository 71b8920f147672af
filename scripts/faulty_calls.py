"""Run a function in a separate process and inject a fault at a chosen system call on a folder.

The process is traced (Linux on x86-64). A seccomp filter stops each of its threads only at the calls of CALLS, also
those of native code. A call is then allowed, refused, shortened, or the process is killed.
"""

import ctypes
import errno
import os
import platform
import re
import signal
import struct
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal, NoReturn, TypeAlias, get_args

# ENOSPC, EIO: this call fails. KILL: the process dies before it. TORN: half of this write is done, and then it dies.
# FULL: the disk takes half of this write, and nothing from then on. DEAD: every call from this one on fails with EIO.
Fault: TypeAlias = Literal["ENOSPC", "EIO", "KILL", "TORN", "FULL", "DEAD"]
FAULTS: tuple[Fault, ...] = get_args(Fault)

# Grouped by their arguments: f descriptor, p path, d descriptor of a folder followed by a path, . anything else.
_NUMBERS = {
    "f": "write=1 pwrite64=18 writev=20 pwritev=296 pwritev2=328 sendfile=40 fsync=74 fdatasync=75 sync_file_range=277 "
    "syncfs=306 ftruncate=77 fallocate=285 fchmod=91",
    "p": "open=2 creat=85 mkdir=83 rmdir=84 unlink=87 truncate=76 chmod=90",
    "d": "openat=257 openat2=437 mkdirat=258 unlinkat=263 fchmodat=268 fchmodat2=452 utimensat=280",
    "pp": "rename=82 link=86",
    "d.d": "renameat=264 renameat2=316 linkat=265",
    ".p": "symlink=88",
    ".d": "symlinkat=266",
    "..f": "copy_file_range=326",
}
_PAIRS = [(shape, call.split("=")) for shape, calls in _NUMBERS.items() for call in calls.split()]
CALLS = {int(number): (name, shape) for shape, (name, number) in _PAIRS}
_SOME_BYTES = frozenset({"write", "pwrite64"})  # calls that can be made to write less
_SPACE = _SOME_BYTES | {"writev", "pwritev", "pwritev2", "creat", "mkdir", "mkdirat", "fallocate", "link"}
_SPACE |= {"linkat", "symlink", "symlinkat", "sendfile", "copy_file_range", "open to create"}

_REGISTERS = "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss fs gs ds es f g"
_ARGUMENTS = ("rdi", "rsi", "rdx", "r10")
_GETREGS, _SETREGS, _CONT, _SYSCALL, _SEIZE, _LISTEN = 12, 13, 7, 24, 0x4206, 0x4208
_OPTIONS = 0x1 | 0x2 | 0x4 | 0x8 | 0x80 | 0x100000  # sysgood, fork, vfork, clone, seccomp, killed with the tracer
_STOPPED, _AT_SECCOMP, _WALL, _AT_FDCWD = 128, 7, 0x40000000, -100
RANDOM = re.compile(r"\.tmp-[a-z0-9_]{8}|\.tmp[A-Za-z0-9]{6}")


class _Registers(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in _REGISTERS.split()]


@dataclass(frozen=True)
class Call:
    """A system call that is the same in every run, because random parts of its paths are removed."""

    name: str
    paths: tuple[str, ...]  # relative to the folder
    nth: int = 0  # number among otherwise equal calls

    def takes(self, fault: Fault) -> bool:
        """Return whether this call can have the fault, and no other fault has the same effect."""
        if fault == "TORN":
            return self.name in _SOME_BYTES
        if fault == "KILL":
            return self.name != "open to read"  # nothing has changed since the previous call
        if fault == "FULL":
            return self.name in _SPACE
        return fault != "ENOSPC" or self.name != "open to read"

    def __str__(self) -> str:
        return f"{self.name} {' '.join(self.paths)}" + (f" (no. {self.nth + 1})" if self.nth else "")


@dataclass
class Ended:
    """How a traced process ended."""

    code: int = 0  # negative: by this signal
    calls: list[Call] = field(default_factory=list)  # calls on the folder, until the fault
    outside: set[str] = field(
        default_factory=set
    )  # files outside of the folder that were changed or opened for writing
    hit: bool = False  # whether the call that should fail was made


def why_not() -> str:
    """Return why processes cannot be traced on this system; an empty text if they can."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "system calls can only be traced on Linux on x86-64"
    try:
        return "" if traced(lambda: 7, Path("/nowhere")).code == 7 else "seccomp does not stop a process here"
    except OSError as error:
        return f"processes may not be traced here ({error})"


def traced(run: Callable[[], int], folder: Path, at: Call | None = None, fault: Fault = "EIO") -> Ended:
    """Run a function in a separate process with a fault `at` a call; its return value is the exit code."""
    ready, go = os.pipe()
    child = os.fork()
    if not child:
        os.close(go)
        os.read(ready, 1)
        _stop_at_calls()
        run_to_the_end(run)
    os.close(ready)
    try:
        _ptrace(_SEIZE, child, 0, _OPTIONS)
    except OSError:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    finally:
        os.close(go)  # ends its read
    return _Tracer(child, f"{folder}/", at, fault).follow()


def run_to_the_end(run: Callable[[], int]) -> NoReturn:
    """Run a function and end the process with its return value as exit code, also after an exception."""
    code = 1
    try:
        code = run()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


@dataclass
class _Tracer:
    child: int
    prefix: str
    at: Call | None
    fault: Fault
    ended: Ended = field(default_factory=Ended)
    seen: Counter[Call] = field(default_factory=Counter)

    def follow(self) -> Ended:
        """Run the process to its end and handle each stop."""
        alive = {self.child}
        while alive:
            task, status = os.waitpid(-1, _WALL)
            if os.WIFEXITED(status) or os.WIFSIGNALED(status):
                alive.discard(task)
                if task == self.child:
                    self.ended.code = os.waitstatus_to_exitcode(status)
                continue
            alive.add(task)
            stop, event = os.WSTOPSIG(status), status >> 16
            try:
                if event == _AT_SECCOMP:
                    self._meet(task)
                elif event == _STOPPED and stop in (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU):
                    _ptrace(_LISTEN, task)
                elif stop == signal.SIGTRAP | 0x80:  # after a write that was cut short
                    os.kill(self.child, signal.SIGKILL)
                    _ptrace(_CONT, task)
                else:
                    _ptrace(_CONT, task, 0, 0 if event else stop)
            except ProcessLookupError:
                continue  # it was killed in the meantime; waitpid reports that next
        return self.ended

    def _meet(self, task: int) -> None:
        registers = _Registers()
        _ptrace(_GETREGS, task, 0, ctypes.addressof(registers))
        call = self._call(task, registers)
        resume = _CONT
        if call is not None:
            now = call == self.at
            self.ended.hit |= now
            if now and self.fault in ("TORN", "FULL") and call.name in _SOME_BYTES and registers.rdx > 1:
                registers.rdx //= 2
                _ptrace(_SETREGS, task, 0, ctypes.addressof(registers))
                resume = _SYSCALL if self.fault == "TORN" else _CONT
            elif now and self.fault in ("KILL", "TORN"):
                os.kill(self.child, signal.SIGKILL)
            elif now or (self.ended.hit and self._lasts(call)):
                registers.orig_rax = 2**64 - 1  # an invalid number, so that no call is made
                registers.rax = 2**64 - (errno.ENOSPC if self.fault in ("ENOSPC", "FULL") else errno.EIO)
                _ptrace(_SETREGS, task, 0, ctypes.addressof(registers))
        _ptrace(resume, task)

    def _lasts(self, call: Call) -> bool:
        return self.fault == "DEAD" or (self.fault == "FULL" and call.name in _SPACE)

    def _call(self, task: int, registers: _Registers) -> Call | None:
        """Return the call that a task is about to make, or None if it does not use the folder."""
        name, shape = CALLS[registers.orig_rax]
        given = [int(getattr(registers, name)) for name in _ARGUMENTS]
        if name in ("open", "openat", "openat2"):
            flags = given[1] if name == "open" else given[2]
            flags = struct.unpack("Q", _memory(task, flags, 8))[0] if name == "openat2" else flags
            to_write = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            name = "open to create" if flags & os.O_CREAT else "open to write" if to_write else "open to read"
        paths = _paths(task, shape, given)
        below = [f"{path}/".removeprefix(self.prefix) for path in paths if f"{path}/".startswith(self.prefix)]
        here = [path.rstrip("/") or "." for path in below]
        if not here:
            if name != "open to read":
                self.ended.outside |= {
                    path
                    for path in paths
                    if not path.startswith(("/dev/", "/proc/", "pipe:", "socket:", "anon_inode:"))
                }
            return None
        call = Call(name, tuple(RANDOM.sub(".tmp*", path) for path in here))
        self.seen[call] += 1
        call = Call(call.name, call.paths, self.seen[call] - 1)
        if not self.ended.hit:
            self.ended.calls.append(call)
        return call


def _paths(task: int, shape: str, given: list[int]) -> list[str]:
    found = []
    for number, kind in enumerate(shape):
        if kind == "f":
            found.append(_link(f"/proc/{task}/fd/{ctypes.c_int(given[number]).value}"))
        elif kind in "pd":
            start = ctypes.c_int(given[number]).value if kind == "d" else _AT_FDCWD
            base = f"/proc/{task}/cwd" if start == _AT_FDCWD else f"/proc/{task}/fd/{start}"
            text = os.fsdecode(_text(task, given[number + (kind == "d")]))
            found.append(os.path.normpath(text if text.startswith("/") else f"{_link(base)}/{text}"))
    return found


def _link(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""


def _memory(task: int, address: int, size: int) -> bytes:
    with open(f"/proc/{task}/mem", "rb", buffering=0) as memory:  # noqa: PTH123
        return _at(memory, address, size)


def _at(memory: BinaryIO, address: int, size: int) -> bytes:
    memory.seek(address)
    return memory.read(size)


def _text(task: int, address: int) -> bytes:
    if not address:
        return b""  # utimensat: the descriptor itself
    found = b""
    with open(f"/proc/{task}/mem", "rb", buffering=0) as memory:  # noqa: PTH123
        while b"\0" not in found:
            found += _at(memory, address + len(found), 256 - (address + len(found)) % 256)  # no page is crossed
    return found.partition(b"\0")[0]


def _ptrace(request: int, task: int, address: int = 0, data: int = 0) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    if libc.ptrace(request, task, address, data) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))  # Python derives ProcessLookupError etc. from the number


def _stop_at_calls() -> None:
    """Stop this process and all its threads at the calls of CALLS from now on."""
    load, jump_if_equal, leave, trace, allow = 0x20, 0x15, 0x06, 0x7FF00000, 0x7FFF0000
    numbers = sorted(CALLS)
    steps = [(load, 0, 0, 0)]
    steps += [(jump_if_equal, len(numbers) - place, 0, number) for place, number in enumerate(numbers)]
    steps += [(leave, 0, 0, allow), (leave, 0, 0, trace)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code)))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong]
    no_new_privileges, seccomp, by_filter = 38, 22, 2
    if prctl(no_new_privileges, 1, 0, 0, 0) or prctl(seccomp, by_filter, ctypes.addressof(program), 0, 0):
        os._exit(255)
