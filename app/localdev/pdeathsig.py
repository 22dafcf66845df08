"""Become another program that cannot outlive the process that asked for it.

Run as a script of its own, so that nothing happens between fork and exec in a process with threads:
`python pdeathsig.py PARENT USER REACH COMMAND...`. PARENT is the process id to follow into death,
USER an account to run as (`-` to stay), REACH `1` where that account must also pass directories
that only root may enter.
"""

import ctypes
import os
import pwd
import signal
import sys

# Source: linux/prctl.h, linux/capability.h.
PR_SET_PDEATHSIG = 1
PR_SET_KEEPCAPS = 8
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2
CAP_DAC_OVERRIDE = 1
CAPABILITY_VERSION_3 = 0x20080522


def main(arguments: list[str]) -> None:
    """Drop to the account, ask for the parent-death signal, and execute the command."""
    parent, user, reach, *command = arguments
    linux = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
    if user != "-":
        _become(user, linux if reach == "1" else None)
    if linux is not None:
        # After the change of user, which clears it.
        _check(linux.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
        if os.getppid() != int(parent):
            sys.exit(0)
    os.execv(command[0], command)  # noqa: S606 - the caller's command is the purpose


def _become(user: str, linux: ctypes.CDLL | None) -> None:
    account = pwd.getpwnam(user)
    if linux is not None:
        _check(linux.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0))
    os.setgroups([])
    os.setresgid(account.pw_gid, account.pw_gid, account.pw_gid)
    os.setresuid(account.pw_uid, account.pw_uid, account.pw_uid)
    if linux is not None:
        _keep_reach(linux)


def _keep_reach(linux: ctypes.CDLL) -> None:
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    mask = 1 << CAP_DAC_OVERRIDE
    # Two words each of effective, permitted, inheritable; the capability is in the first.
    data = (ctypes.c_uint32 * 6)(mask, mask, mask, 0, 0, 0)
    _check(linux.capset(header, data))
    _check(linux.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_DAC_OVERRIDE, 0, 0))


def _check(result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        sys.exit(f"launch: {os.strerror(code)}")


if __name__ == "__main__":
    main(sys.argv[1:])
