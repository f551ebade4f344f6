"""What people run today: a loop in Python that asks libslurm once a second and sends a pickle to Carbon."""
import ctypes, pickle, socket, struct, sys, time

# Plugins of libslurm find its symbols only so.
library, port = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL), int(sys.argv[2])
NAMES = """req_time req_time_start server_thread_count agent_queue_size agent_count agent_thread_count
dbd_agent_queue_size jobs_submitted jobs_started jobs_completed jobs_canceled jobs_failed jobs_pending
jobs_running main_max_cycle main_last_cycle cycle_sum main_total_cycles cycle_depth main_last_queue_length
bf_total_jobs_since_slurm_start bf_total_jobs_since_cycle_start bf_total_cycles bf_cycle_sum bf_last_cycle
bf_max_cycle bf_last_depth_cycle bf_last_depth_cycle_try bf_depth_sum bf_depth_try_sum bf_queue_length
bf_queue_len_sum""".split()
NOT_SENT = {"req_time", "req_time_start", "agent_count", "agent_thread_count", "cycle_sum", "cycle_depth",
            "bf_cycle_sum", "bf_depth_sum", "bf_depth_try_sum", "bf_queue_len_sum"}
MOST = 1000
figures, rows = (ctypes.c_ulong * len(NAMES))(), (ctypes.c_ulong * 3 * MOST)()


def statistics():
    count = library.get_statistics(figures, rows, MOST)
    assert count >= 0, "slurmctld does not answer"
    stats = dict(zip(NAMES, figures))
    stats["rpcs"] = [{"id": row[0], "count": row[1], "time": row[2]} for row in rows[:count]]
    return stats


def points(stats, now):
    mean = lambda total, count: stats[total] / stats[count] if stats[count] else 0
    sent = {name: stats[name] for name in NAMES if name not in NOT_SENT}
    minutes = (stats["req_time"] - stats["req_time_start"]) / 60
    sent["main_cycles_per_minute"] = stats["main_total_cycles"] / minutes if minutes else 0
    for name, total in [("main_mean_cycle", "cycle_sum"), ("main_mean_depth_cycle", "cycle_depth")]:
        sent[name] = mean(total, "main_total_cycles")
    for name, total in [("bf_mean_cycle", "bf_cycle_sum"), ("bf_depth_mean", "bf_depth_sum"),
                        ("bf_depth_mean_try", "bf_depth_try_sum"), ("bf_queue_length_mean", "bf_queue_len_sum")]:
        sent[name] = mean(total, "bf_total_cycles")
    return [(f"cluster.slurm_sched_stats.gauge-{name}", (now, value)) for name, value in sent.items()]


library.slurm_init(None)
carbon = socket.create_connection(("127.0.0.1", port))
print("connected", flush=True)
while True:
    time.sleep(1 - time.time() % 1)
    body = pickle.dumps(points(statistics(), int(time.time())), protocol=2)
    carbon.sendall(struct.pack("!L", len(body)) + body)
