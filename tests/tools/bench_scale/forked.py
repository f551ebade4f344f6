"""Runs commands, a line each, a few times, one after the other, and takes each line of their
output apart. Prints in us the CPU of the commands, that of this program, both with the reading,
and the wall time; the most memory of a command in KiB."""
import json
import resource
import shlex
import subprocess
import sys
import time


def used(who):
    part = resource.getrusage(who)
    return part.ru_utime + part.ru_stime


def take_apart(line):
    if line.startswith(b"{"):
        return json.loads(line)
    return line.split(next((mark for mark in (b"|", b",") if mark in line), None))


def run(commands):
    for command in commands:
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            for line in process.stdout:
                take_apart(line)
        if process.returncode:
            sys.exit(f"{command}: {process.returncode}")


def measure(commands):
    who = (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)
    before = (*map(used, who), time.monotonic())
    run(commands)
    after = (*map(used, who), time.monotonic())
    return [(late - early) * 1e6 for late, early in zip(after, before)]


times, commands = int(sys.argv[1]), [shlex.split(line) for line in sys.argv[2].splitlines()]
columns = zip(*(measure(commands) for _ in range(times)))
most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(*(sorted(column)[times // 2] for column in columns), most)
