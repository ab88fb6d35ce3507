#!/usr/bin/env python3
"""Seconds of an averaging round between two workers over an emulated link, against the line rate.

usage: run.py [--profile 100mbit/50ms] [--codec fp32 ...] [--parameters 8000000] [--rounds 3] [--uplink-mbit 100]
              [--idle-seconds 2] [--output FILE]

Each worker is a process (bench_averaging); each direction of the pair goes through `stagecoach linkem`. line = payload bytes sent
by a worker / line rate; the formula (direct exchange) adds the delay of one way. Efficiency = line / measured.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "..", ".."))


def measure(arguments, codec, base, meeting):
    listen = [f"127.0.0.1:{base}", f"127.0.0.1:{base + 1}"]
    through = [f"127.0.0.1:{base + 2}", f"127.0.0.1:{base + 3}"]  # how the other rank reaches rank i
    emulator = subprocess.Popen([f"{arguments.build}/bin/stagecoach", "linkem", "--profile", arguments.profile,
                                 "--link", f"w1:w0={through[0]}->{listen[0]}", "--link", f"w0:w1={through[1]}->{listen[1]}"],
                                stdout=subprocess.PIPE, text=True)
    try:
        emulator.stdout.readline()
        workers = [subprocess.Popen([f"{arguments.build}/bench/bench_averaging", "--rank", str(rank), "--listen", listen[rank],
                                     "--peers", ",".join(through), "--codec", codec, "--parameters", str(arguments.parameters),
                                     "--rounds", str(arguments.rounds), "--uplink-mbit", str(arguments.uplink_mbit),
                                     "--idle-seconds", str(arguments.idle_seconds), "--meeting", meeting],
                                    stdout=subprocess.PIPE, text=True) for rank in range(2)]
        rows = []
        try:
            for worker in workers:
                out, _ = worker.communicate(timeout=170)
                if worker.returncode != 0:
                    raise RuntimeError(f"bench_averaging ended with {worker.returncode}")
                rows.append(json.loads(out))
        finally:
            for worker in workers:
                worker.kill()
    finally:
        emulator.terminate()
        emulator.wait()
    if rows[0]["hashes"] != rows[1]["hashes"]:
        raise RuntimeError("the two workers hold other bits")
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--profile", default="100mbit/50ms")
    parser.add_argument("--codec", action="append")
    parser.add_argument("--parameters", type=int, default=8000000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--uplink-mbit", type=float, default=100)
    parser.add_argument("--idle-seconds", type=float, default=2, help="before each round")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--output")
    arguments = parser.parse_args()
    mbit = float(re.match(r"([0-9.]+)mbit", arguments.profile).group(1))
    rtt = float(re.search(r"/([0-9.]+)ms", arguments.profile).group(1)) / 1000
    results = []
    for number, codec in enumerate(arguments.codec or ["fp32", "bf16", "int8", "int4"]):
        with tempfile.TemporaryDirectory() as meeting:
            rows = measure(arguments, codec, 27100 + 10 * number, meeting)
        slower = [max(pair) for pair in zip(rows[0]["seconds"], rows[1]["seconds"])]
        median = statistics.median(slower)
        line = rows[0]["payload_bytes"] * 8 / (mbit * 1e6)
        results.append({"codec": codec, "seconds": median, "all_seconds": slower, "payload_bytes": rows[0]["payload_bytes"],
                        "line_seconds": line, "formula_seconds": line + rtt / 2, "of_line": line / median,
                        "of_formula": (line + rtt / 2) / median})
        print(json.dumps(results[-1]), flush=True)
    if arguments.output:
        with open(arguments.output, "w", encoding="utf-8") as out:
            json.dump(results, out, indent=1)


if __name__ == "__main__":
    sys.exit(main())
