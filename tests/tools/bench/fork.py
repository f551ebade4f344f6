"""The way of others: fork sdiag every second and parse its text. Prints the CPU of a round in µs: all, sdiag alone."""
import re, resource, subprocess, sys, time

rounds, program = int(sys.argv[1]), sys.argv[2]
LINE = re.compile(r"^\s*([^:]+):\s+(\d+)")


def cpu(who):
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def sdiag():
    text = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    return {match[1]: int(match[2]) for match in map(LINE.match, text.splitlines()) if match}


sdiag()
own, child = cpu(resource.RUSAGE_SELF), cpu(resource.RUSAGE_CHILDREN)
for _ in range(rounds):
    start = time.monotonic()
    assert "Jobs submitted" in sdiag()
    time.sleep(max(0, 1 - (time.monotonic() - start)))
own, child = cpu(resource.RUSAGE_SELF) - own, cpu(resource.RUSAGE_CHILDREN) - child
print(round((own + child) / rounds * 1e6), round(child / rounds * 1e6))
