"""What people run today: a loop in Python that asks libslurm once a second and sends a pickle to Carbon.
With PySlurm, or with ctypes and a library of C, whose statistics have the names of PySlurm's."""
import pickle, socket, struct, sys, time

NAMES = """req_time req_time_start server_thread_count agent_queue_size agent_count agent_thread_count
dbd_agent_queue_size jobs_submitted jobs_started jobs_completed jobs_canceled jobs_failed jobs_pending
jobs_running schedule_cycle_max schedule_cycle_last schedule_cycle_sum schedule_cycle_counter
schedule_cycle_depth schedule_queue_len bf_backfilled_jobs bf_last_backfilled_jobs bf_cycle_counter
bf_cycle_sum bf_cycle_last bf_cycle_max bf_last_depth bf_last_depth_try bf_depth_sum bf_depth_try_sum
bf_queue_len bf_queue_len_sum""".split()
NOT_SENT = {"req_time", "req_time_start", "agent_count", "agent_thread_count", "schedule_cycle_sum",
            "schedule_cycle_depth", "bf_cycle_sum", "bf_depth_sum", "bf_depth_try_sum", "bf_queue_len_sum"}
MOST = 1000


def ctypes_loop(path):
    import ctypes
    # Plugins of libslurm find its symbols only so.
    library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    library.slurm_init(None)
    figures, rows = (ctypes.c_ulong * len(NAMES))(), (ctypes.c_ulong * 3 * MOST)()

    def statistics():
        count = library.get_statistics(figures, rows, MOST)
        assert count >= 0, "slurmctld does not answer"
        stats = dict(zip(NAMES, figures))
        stats["rpcs"] = [{"id": row[0], "count": row[1], "time": row[2]} for row in rows[:count]]
        return stats
    return statistics


def pyslurm_loop():
    import pyslurm
    return pyslurm.statistics().get


def points(stats, now):
    mean = lambda total, count: stats[total] / stats[count] if stats[count] else 0
    # PySlurm has no counts of agents.
    sent = {name: stats[name] for name in NAMES if name not in NOT_SENT and name in stats}
    minutes = (stats["req_time"] - stats["req_time_start"]) / 60
    sent["cycles_per_minute"] = stats["schedule_cycle_counter"] / minutes if minutes else 0
    for name, total in [("cycle_mean", "schedule_cycle_sum"), ("cycle_mean_depth", "schedule_cycle_depth")]:
        sent[name] = mean(total, "schedule_cycle_counter")
    for name, total in [("bf_cycle_mean", "bf_cycle_sum"), ("bf_depth_mean", "bf_depth_sum"),
                        ("bf_depth_mean_try", "bf_depth_try_sum"), ("bf_queue_len_mean", "bf_queue_len_sum")]:
        sent[name] = mean(total, "bf_cycle_counter")
    return [(f"cluster.slurm_sched_stats.gauge-{name}", (now, value)) for name, value in sent.items()]


port, library = int(sys.argv[1]), sys.argv[2:]
statistics = ctypes_loop(*library) if library else pyslurm_loop()
carbon = socket.create_connection(("127.0.0.1", port))
print("connected", flush=True)
while True:
    time.sleep(1 - time.time() % 1)
    body = pickle.dumps(points(statistics(), int(time.time())), protocol=2)
    carbon.sendall(struct.pack("!L", len(body)) + body)
