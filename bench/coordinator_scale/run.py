#!/usr/bin/env python3
"""What a coordinator costs with many worker sessions: cores, resident memory, time of a heartbeat.

usage: run.py [--sessions 1000 ...] [--seconds 20] [--build DIR] [--output FILE]

The coordinator is the product's program, with its journal; the workers are bench_worker_sessions. Cores and memory are those of
the coordinator alone, over the measured seconds.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "..", ".."))
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_mb(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) / 1024


def wait_for(path, process, seconds):
    end = time.monotonic() + seconds
    while not os.path.exists(path):
        if process.poll() is not None or time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def measure(a, sessions):
    with tempfile.TemporaryDirectory() as scratch:
        port_file, started = os.path.join(scratch, "port"), os.path.join(scratch, "registered")
        with open(os.path.join(scratch, "log"), "w", encoding="utf-8") as log:
            coordinator = subprocess.Popen([f"{a.build}/bin/stagecoach-coordinator", "--listen", "127.0.0.1:0", "--state-dir",
                                            os.path.join(scratch, "state"), "--port-file", port_file], stdout=log, stderr=log)
        workers = None
        try:
            if not wait_for(port_file, coordinator, 30):
                raise RuntimeError("the coordinator did not start")
            empty = resident_mb(coordinator.pid)
            with open(port_file, encoding="utf-8") as file:
                address = f"127.0.0.1:{file.read().strip()}"
            workers = subprocess.Popen([f"{a.build}/bench/bench_worker_sessions", "--coordinator", address, "--sessions", str(sessions),
                                        "--seconds", str(a.seconds), "--registered-file", started], stdout=subprocess.PIPE, text=True)
            measured = wait_for(started, workers, 120)
            before, since = cpu_seconds(coordinator.pid), time.monotonic()
            if measured:
                time.sleep(a.seconds - 1)
            cores = (cpu_seconds(coordinator.pid) - before) / (time.monotonic() - since)
            memory = resident_mb(coordinator.pid)
            row = json.loads(workers.communicate(timeout=60)[0])
            row.update({"coordinator_cores": round(cores, 3), "resident_mb": round(memory, 1), "empty_mb": round(empty, 1),
                        "kb_a_session": round((memory - empty) * 1024 / sessions, 1)})
            return row
        finally:
            for process in (workers, coordinator):
                if process is not None:
                    process.kill()
                    process.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sessions", type=int, action="append")
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--output")
    a = parser.parse_args()
    rows = []
    for sessions in a.sessions or [1000]:
        rows.append(measure(a, sessions))
        print(json.dumps(rows[-1]), flush=True)
    if a.output:
        with open(a.output, "w", encoding="utf-8") as out:
            json.dump(rows, out, indent=1)


if __name__ == "__main__":
    sys.exit(main())
