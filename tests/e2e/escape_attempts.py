"""Attempts to get out of the sandbox: scripts, and the witnesses that would see them succeed."""

import os
import textwrap
from typing import Literal, NamedTuple

from hermes.exec.sandbox.seccomp import CALL_NUMBERS

PRELUDE = """
import ctypes, os, re, resource, signal, socket, struct, time
globals().update(os.environ)
AGENT, VICTIM, TCP, UDP, FD = map(int, (AGENT, VICTIM, TCP, UDP, FD))
libc = ctypes.CDLL(None, use_errno=True)
errno = ctypes.get_errno
def escaped():
    with open("escaped", "w") as file: file.write("yes")
def clone(flags):
    pid = libc.syscall(CLONE, flags | 17, 0, 0, 0, 0)
    return pid or os._exit(0)
def clone3(flags):
    pid = libc.syscall(435, struct.pack("11Q", flags, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0), 88)
    return pid or os._exit(0)
"""

Witness = Literal["changed", "leaked", "contacted", "signalled", "left", "claimed", "oversized"]


Control = Literal["always", "often", "never"]


class Attempt(NamedTuple):
    """`claimed`: only the script itself can see it; it then writes to a file in the workspace."""

    name: str
    witness: Witness
    script: str
    control: Control = "always"
    """Whether it succeeds without a sandbox: often = as root, on most machines; never = it would
    be too dangerous to show, or something else forbids it."""
    python: bool = False


def sh(name: str, witness: Witness, script: str, control: Control = "always") -> Attempt:
    return Attempt(name, witness, script, control)


def claim(name: str, script: str, control: Control = "often") -> Attempt:
    """Shell; its success is the escape."""
    return Attempt(name, "claimed", f"{{ {script}; }} && echo yes > escaped", control)


def py(name: str, witness: Witness, script: str, control: Control = "always") -> Attempt:
    return Attempt(name, witness, textwrap.dedent(script), control, True)


def call(name: str, arguments: str, control: Control = "often", system_call: str = "") -> Attempt:
    """A system call; any answer but "not permitted" and "no such call" is the escape."""
    number = CALL_NUMBERS[system_call or name][0 if os.uname().machine == "x86_64" else 1]
    script = f"if libc.syscall({number}, {arguments}) >= 0 or errno() not in (1, 38): escaped()"
    return Attempt(name, "claimed", script, control, True)


SAME = "cat {0} > sub/v && cat sub/v > {0}"
LEAVE = "for d in $GROUPS_; do echo 0 > $d/cgroup.procs && ok=1; done; [ $ok ]"
ORPHAN = "setsid sh -c '(setsid sleep '$MARK' &) &' >/dev/null 2>&1"
INJECT = """
import fcntl, pty
fcntl.ioctl(pty.openpty()[1], 0x5412, b"x")
escaped()
"""
SET_ID = """
os.close(os.open("sub/s", os.O_CREAT | os.O_WRONLY, 0o4755))
if os.stat("sub/s").st_mode & 0o4000: escaped()
"""
TRACE = """
if libc.ptrace(16, VICTIM, 0, 0) == 0:
    escaped()
    os.waitpid(VICTIM, 0x40000000)
    libc.ptrace(17, VICTIM, 0, 0)
"""
FORK_BOMB = """
count = 0
for _ in range(300):
    try:
        if not os.fork():
            time.sleep(5)
            os._exit(0)
        count += 1
    except OSError:
        break
if count > 200: escaped()
os.killpg(0, 9)
"""
MEMORY_BOMB = """
kept = [b"x" * (16 << 20) for _ in range(30)]
escaped()
"""
MEMORY_BOMBS = """
children = []
for _ in range(5):
    pid = os.fork()
    if not pid:
        kept = b"x" * (90 << 20)
        time.sleep(0.3)
        os._exit(7)
    children.append(pid)
if all(os.waitpid(pid, 0)[1] == 7 << 8 for pid in children): escaped()
"""
MEMORY = """
for line in open(f"/proc/{AGENT}/maps"):
    first, last = (int(n, 16) for n in line.split()[0].split("-"))
    if "rw" in line.split()[1] and last - first < 1 << 26:
        try:
            with open(f"/proc/{AGENT}/mem", "rb", 0) as file:
                file.seek(first)
                found = re.search(b"KEY-[0-9a-f]{32}", file.read(last - first))
        except OSError:
            continue
        if found: print(found[0])
"""
VM_READ = """
base = int(open(f"/proc/{AGENT}/maps").readline().split("-")[0], 16)
data = ctypes.create_string_buffer(16)
local = (ctypes.c_uint64 * 2)(ctypes.addressof(data), 16)
if libc.process_vm_readv(AGENT, local, 1, (ctypes.c_uint64 * 2)(base, 16), 1, 0) == 16: escaped()
"""
GET_FD = """
fd = libc.syscall(438, os.pidfd_open(AGENT), FD, 0)
print(os.pread(fd, 100, 0))
"""
SWAP_FOLDER = """
os.makedirs("sub/swap", exist_ok=True)
racer = os.fork()
while not racer:
    try:
        os.rename("sub/swap", "sub/real")
        os.symlink(OUT, "sub/swap")
        os.unlink("sub/swap")
        os.rename("sub/real", "sub/swap")
    except OSError:
        pass
for _ in range(4000):
    try:
        with open("sub/swap/raced", "w") as file: file.write("x")
    except OSError:
        pass
os.kill(racer, 9)
"""
SWAP_FILE = """
racer = os.fork()
while not racer:
    try:
        open("sub/m", "w").close()
        os.unlink("sub/m")
        os.symlink(f"{OUT}/file", "sub/m")
        os.unlink("sub/m")
    except OSError:
        pass
for _ in range(1500):
    try:
        os.chmod("sub/m", 0o777)
    except OSError:
        pass
os.kill(racer, 9)
"""
VIA_ROOT = """
os.chdir(f"/proc/{AGENT}/root" + os.path.dirname(SOCK))
socket.socket(1).connect(os.path.basename(SOCK))
"""

# The scripts know these names: $OUT a folder outside, $AGENT_HOME and $HOME_ the hidden homes,
# $AGENT the agent's process id and $FD a file it has open, $VICTIM another process of this user,
# $TCP and $UDP ports, $SOCK and $ABSTRACT unix sockets, $MARK the duration of this test's sleeps.
READS = [
    sh("read the agent's keys", "leaked", "cat $AGENT_HOME/.env"),
    sh("read the agent's keys relatively", "leaked", "cat ../agent/.env"),
    sh("read a private key", "leaked", "cat $HOME_/.ssh/id_rsa"),
    sh("read every file below", "leaked", "grep -rh KEY .. $OUT/.. 2>/dev/null | head -50"),
    sh("read a key by a link", "leaked", "ln -s $AGENT_HOME/.env sub/l; cat sub/l"),
    sh("read a key by a link that was there", "leaked", "cat sub/to-key"),
    sh("read a key by a hard link", "leaked", "ln $AGENT_HOME/.env sub/h && cat sub/h"),
    sh("copy a key", "leaked", "cp $AGENT_HOME/.env sub/copy; mv $HOME_/.ssh/id_rsa sub/moved"),
    sh("read a key by /proc/self/root", "leaked", "cat /proc/self/root$AGENT_HOME/.env"),
    sh("read a key by the parent's root", "leaked", "cat /proc/$PPID/root$AGENT_HOME/.env"),
    sh("read a key by the agent's root", "leaked", "cat /proc/$AGENT/root$AGENT_HOME/.env"),
    sh("read a key by anybody's root", "leaked", "cat /proc/[0-9]*/root$AGENT_HOME/.env | head -9"),
    sh("read another's environment", "leaked", "tr '\\0' '\\n' < /proc/$VICTIM/environ"),
    sh("read everybody's environment", "leaked", "cat /proc/[0-9]*/environ | tr '\\0' '\\n'"),
    sh("read the agent's open files", "leaked", "cat /proc/$AGENT/fd/$FD"),
    py("read the agent's memory", "leaked", MEMORY, "often"),
    py("read the agent's memory by a call", "claimed", VM_READ, "often"),
    py("take a descriptor of the agent", "leaked", GET_FD, "often"),
]
WRITES = [
    sh("write outside", "changed", "echo x > $OUT/new"),
    sh("write outside relatively", "changed", "echo x > ../outside/new"),
    sh("overwrite outside", "changed", "echo x > $OUT/file"),
    sh("append outside", "changed", "echo x >> $OUT/file"),
    sh("truncate outside", "changed", "truncate -s 0 $OUT/file"),
    py(
        "truncate outside by reading", "changed", "os.open(f'{OUT}/file', os.O_RDONLY | os.O_TRUNC)"
    ),
    py("truncate outside by path", "changed", "os.truncate(f'{OUT}/file', 1)"),
    sh("remove outside", "changed", "rm -rf $OUT/file $OUT/folder"),
    sh("rename outside", "changed", "mv $OUT/file $OUT/renamed"),
    sh("move out of the workspace", "changed", "echo x > sub/m; mv sub/m $OUT/moved"),
    sh("change a mode outside", "changed", "chmod 777 $OUT/file"),
    py(
        "change a mode outside by descriptor",
        "changed",
        "os.fchmod(os.open(f'{OUT}/file', 0), 0o777)",
    ),
    py(
        "change a mode outside by a path descriptor",
        "changed",
        "os.chmod('/proc/self/fd/%d' % os.open(f'{OUT}/file', os.O_PATH), 0o777)",
    ),
    sh("change a mode outside by a link", "changed", "ln -s $OUT/file sub/l; chmod 777 sub/l"),
    sh("change times outside", "changed", "touch -d 2001-01-01 $OUT/file"),
    sh("change an owner outside", "changed", "chown 12345 $OUT/file", "often"),
    py(
        "set an attribute outside", "changed", "os.setxattr(f'{OUT}/file', 'user.x', b'x')", "never"
    ),
    sh("write by a link", "changed", "ln -s $OUT/file sub/l; echo x > sub/l"),
    sh("write by a link that was there", "changed", "echo x > sub/to-file"),
    sh("write by a hard link", "changed", "ln $OUT/file sub/h && echo x > sub/h"),
    sh("write by /proc/self/root", "changed", "echo x > /proc/self/root$OUT/file"),
    sh("write by the agent's root", "changed", "echo x > /proc/$AGENT/root$OUT/file"),
    sh("leave a key to log in with", "changed", "echo ssh-rsa >> $HOME_/.ssh/authorized_keys"),
    sh(
        "change the agent's settings",
        "changed",
        "echo 'sandbox: {mode: off}' > $AGENT_HOME/config.yaml",
    ),
    sh("remove the agent's home", "changed", "rm -rf $AGENT_HOME"),
    sh("rename the agent's home", "changed", "mv $AGENT_HOME $AGENT_HOME.old"),
    claim("write to /etc", "echo x > /etc/hermes-escape && rm /etc/hermes-escape", "never"),
    claim("make a folder in /", "mkdir /hermes-escape && rmdir /hermes-escape", "never"),
    claim(
        "write to /usr/bin", "echo > /usr/bin/hermes-escape && rm /usr/bin/hermes-escape", "never"
    ),
    sh("leave a file in the shared /tmp", "left", "echo x > /tmp/$MARK"),
    sh("leave a file in the shared memory", "left", "echo x > /dev/shm/$MARK"),
    py("swap a folder for a link while writing", "changed", SWAP_FOLDER, "often"),
    py("swap a file for a link while changing its mode", "changed", SWAP_FILE, "often"),
]
PROTECTED = [
    sh("change a hook", "changed", "echo evil > .git/hooks/pre-commit"),
    sh("make a hook", "changed", "echo evil > .git/hooks/post-checkout"),
    sh(
        "change git's settings",
        "changed",
        "git config core.fsmonitor evil; echo evil >> .git/config",
    ),
    sh("make a hook runnable", "changed", "chmod +x .git/hooks/pre-commit"),
    sh("replace .git", "changed", "mv .git .gone; mkdir .git; echo evil > .git/config"),
    sh("remove .git", "changed", "rm -rf .git"),
    sh("replace .git by a link", "changed", "rm -rf .git; ln -s sub .git"),
    sh("make a protected file", "changed", "echo evil > .cursorrules"),
    sh("make a protected folder", "changed", "mkdir -p .hermes && echo evil > .hermes/config.yaml"),
    sh("move a file to a protected name", "changed", "echo evil > sub/e; mv sub/e .cursorrules"),
    sh("link a protected name", "changed", "ln -s sub .hermes; ln sub/file .cursorrules"),
    sh("change a protected file", "changed", "echo evil > AGENTS.md; sed -i s/a/b/ AGENTS.md"),
    sh("replace a protected file", "changed", "echo evil > sub/e; mv -f sub/e AGENTS.md"),
    sh("replace a protected link", "changed", "ln -sfn sub/file CLAUDE.md"),
    sh("move a file over a protected link", "changed", "echo evil > sub/e; mv -f sub/e CLAUDE.md"),
    sh("write by a protected link", "changed", "echo evil > CLAUDE.md"),
    sh("remove a protected link", "changed", "rm CLAUDE.md"),
    sh("rename the workspace", "changed", "mv $PWD $PWD.old && mkdir $PWD"),
    sh("touch a protected file", "changed", "touch -d 2001-01-01 AGENTS.md"),
    py("protected file by a descriptor", "changed", "os.fchmod(os.open('AGENTS.md', 0), 0o777)"),
]
KERNEL = [
    claim("remount", "mount -o remount,rw /", "never"),
    sh("unmount what hides", "leaked", "umount $AGENT_HOME $HOME_; cat $AGENT_HOME/.env"),
    claim("mount a new file system", "mount -t tmpfs none sub && umount sub"),
    claim("bind mount", "mount --bind / sub && umount sub"),
    claim("chroot", "chroot / /bin/true"),
    claim("user namespace", "unshare -Ur true"),
    claim("mount namespace", "unshare -m true"),
    claim("network namespace", "unshare -Urn true"),
    claim("enter the agent's namespaces", "nsenter -t $AGENT -m -n true"),
    claim("enter the first process's namespaces", "nsenter -t 1 -m true", "never"),
    py("clone into a user namespace", "claimed", "if clone(0x10000000) > 0: escaped()", "often"),
    py("clone3 into a user namespace", "claimed", "if clone3(0x10000000) > 0: escaped()", "often"),
    call("mount", "b'none', b'sub', b'tmpfs', 0, 0", "never"),
    call("open_tree", "-100, b'/', 1"),
    call("fsopen", "b'tmpfs', 0"),
    call("pivot_root", "b'.', b'.'"),
    call("setns", "os.open('/proc/self/ns/net', 0), 0"),
    call("io_uring_setup", "4, ctypes.create_string_buffer(120)"),
    call("add_key", "b'user', b'x', b'y', 1, -2"),
    call("keyctl", "0, -3, 0"),
    call("bpf", "0, (ctypes.c_uint32 * 18)(2, 4, 8, 1), 72"),
    call("perf_event_open", "struct.pack('II', 1, 128) + bytes(120), 0, -1, -1, 0"),
    call("userfaultfd", "1"),
    call("finit_module", "-1, b'', 0", "never"),
    call("kexec_load", "0, 0, 0, 0", "never"),
    call("syslog", "3, ctypes.create_string_buffer(64), 64"),
    call("sethostname", "socket.gethostname().encode(), len(socket.gethostname())"),
    call("clock_settime", "99, 0"),
    call("reboot", "0xfee1dead, 672274793, 0, 0", "never"),
    call("swapon", "b'/nonexistent', 0"),
    call("acct", "b'/nonexistent/file'"),
    call("open_by_handle_at", "-100, bytes(16), 0"),
    call("fanotify_init", "0, 0"),
    call("kcmp", "AGENT, VICTIM, 0, 0, 0"),
    py("inject into a terminal", "claimed", INJECT, "often"),
    claim("a capability", "grep -q 'CapEff:.*[1-9a-f]' /proc/self/status"),
    claim("new privileges", "grep -q 'NoNewPrivs:.*0' /proc/self/status", "always"),
    claim(
        "a program that runs as us", "cp /bin/true sub/s; chmod u+s sub/s; [ -u sub/s ]", "always"
    ),
    py("such a program from birth", "claimed", SET_ID, "always"),
    claim("another user", "setpriv --reuid 1 --clear-groups true"),
    claim("a device node", "mknod sub/d b 254 0"),
    claim("a disk", "for d in $DISKS; do head -c 1 $d > /dev/null && ok=1; done; [ $ok ]", "never"),
    claim(
        "memory of the kernel", "head -c 1 /dev/mem >/dev/null || head -c 1 /proc/kcore", "never"
    ),
    claim("a setting of the kernel", SAME.format("/proc/sys/kernel/domainname")),
    claim("the helper for core dumps", SAME.format("/proc/sys/kernel/core_pattern")),
    claim("the magic key", "echo h > /proc/sysrq-trigger", "never"),
    claim(
        "a control group", "for d in $GROUPS_; do mkdir $d/x && rmdir $d/x && ok=1; done; [ $ok ]"
    ),
    claim("leave the control group", LEAVE, "never"),
]
PROCESSES = [
    sh("signal the agent", "signalled", "kill -USR1 $AGENT"),
    sh("kill another process", "signalled", "kill -9 $VICTIM"),
    sh("signal everything", "signalled", "kill -CONT -1", "never"),
    sh("kill the supervisor", "signalled", "kill -9 $PPID; sleep 0.1"),
    py("kill by a descriptor", "signalled", "signal.pidfd_send_signal(os.pidfd_open(VICTIM), 9)"),
    py("queue a signal", "signalled", "libc.sigqueue(VICTIM, 9, None)"),
    py("trace another process", "claimed", TRACE, "often"),
    py("limit another process", "claimed", "resource.prlimit(VICTIM, 4)\nescaped()"),
    claim("offer the agent to the OOM killer", SAME.format("/proc/$AGENT/oom_score_adj"), "always"),
    py(
        "write into a process",
        "claimed",
        "open(f'/proc/{VICTIM}/mem', 'r+b', 0)\nescaped()",
        "often",
    ),
    sh("outlive the agent", "left", "setsid sleep $MARK >/dev/null 2>&1 & disown; true", "never"),
    sh("outlive it twice removed", "left", f"({ORPHAN} &); true", "never"),
    sh("outlive it ignoring all", "left", f"trap '' TERM HUP INT; nohup {ORPHAN}", "never"),
    py("fork bomb", "claimed", FORK_BOMB),
    py("memory bomb", "claimed", MEMORY_BOMB),
    py("memory bomb in many processes", "claimed", MEMORY_BOMBS),
    sh("disk filler", "oversized", "head -c 20000000 /dev/zero > sub/big"),
    sh("disk filler by holes", "oversized", "truncate -s 1G sub/big"),
    py(
        "disk filler by reservation",
        "oversized",
        "os.posix_fallocate(os.open('sub/b', 66), 0, 1<<24)",
    ),
]
NETWORK = [
    sh("tcp", "contacted", "exec 3<>/dev/tcp/127.0.0.1/$TCP; echo x >&3"),
    sh("udp", "contacted", "echo x > /dev/udp/127.0.0.1/$UDP"),
    py(
        "tcp, mapped",
        "contacted",
        "socket.create_connection(('::ffff:127.0.0.1', TCP), 1)",
        "often",
    ),
    py("udp, unconnected", "contacted", "socket.socket(2, 2).sendto(b'x', ('127.0.0.1', UDP))"),
    py("a unix socket", "contacted", "socket.socket(1).connect(SOCK)"),
    py("a unix datagram", "contacted", "socket.socket(1, 2).sendto(b'x', SOCK + '.dgram')"),
    py(
        "a unix datagram from a pair",
        "contacted",
        "a, b = socket.socketpair(1, 2)\na.sendto(b'x', SOCK + '.dgram')",
    ),
    py("an abstract unix socket", "contacted", "socket.socket(1).connect('\\0' + ABSTRACT)"),
    py("a unix socket by the agent's root", "contacted", VIA_ROOT),
    py("a raw socket", "claimed", "socket.socket(2, 3, 1)\nescaped()", "often"),
    py("a packet socket", "claimed", "socket.socket(17, 3, 768)\nescaped()", "often"),
    py("the machine beneath", "claimed", "socket.socket(40, 1)\nescaped()", "often"),
    py("the kernel's cryptography", "claimed", "socket.socket(38, 5)\nescaped()", "often"),
    py("everybody's sockets", "claimed", "socket.socket(16, 3, 4)\nescaped()", "often"),
]
ATTEMPTS = [*READS, *WRITES, *PROTECTED, *KERNEL, *PROCESSES, *NETWORK]
