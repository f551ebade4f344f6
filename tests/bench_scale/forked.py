"""Runs a command a few times with its output thrown away; prints its CPU and wall in us and its most memory in KiB."""
import os
import resource
import subprocess
import sys
import time

cpu, wall = [], []
for _ in range(3):
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    wall.append(time.monotonic() - start)
print(sorted(cpu)[1] * 1e6, sorted(wall)[1] * 1e6, after.ru_maxrss)
