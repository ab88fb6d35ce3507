#!/usr/bin/env python3
"""Seconds of an averaging round between two hosts: hivemind's all-reduce and ours, over equal links, in one run.

usage: run.py [--shape 100/50] [--parameters 8000000] [--rounds 5] [--only hivemind|stagecoach] [--codec NAME ...] [--idle-seconds 2]
              [--output FILE]

Two network namespaces behind a hub (../star_network.py); each has an uplink and a downlink of RATE Mbit/s and they are RTT ms
apart. Needs root, the benchmark programs built (scripts/setup.sh --tests), and hivemind's environment (setup_venv.sh).
Both sides average the same number of parameters; a round is timed from the moment when all are ready to the new values, the
slower peer counts. line = payload bytes that a peer sends / rate; of_line = line / median seconds; of_formula = (line + RTT / 2) /
median seconds.
"""
import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "..", "..", ".."))
sys.path.insert(0, os.path.join(HERE, ".."))
from star_network import StarNetwork  # noqa: E402

PEERS = 2
HIVEMIND_BITS = {"fp32": 32, "fp16": 16}
# Of the rate, what our pacer is told. 0.945 is left for payload: 52 bytes of headers in a packet of 1,400, and the
# acknowledgements of the other direction. Below that no queue builds up. A worker's measured uplink is payload too.
GOODPUT = 0.93
DEADLINE = 200  # seconds for all rounds of one codec


def gather(processes):
    """The JSON line of each process; all of them are gone afterwards, with what they have started."""
    try:
        rows = []
        for process in processes:
            out, _ = process.communicate(timeout=DEADLINE)
            if process.returncode != 0:
                raise RuntimeError(f"{process.args} ended with {process.returncode}")
            rows.append(json.loads(out.strip().splitlines()[-1]))
        return rows
    finally:
        for process in processes:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


def start(network, host, command, **kwargs):
    return subprocess.Popen(network.on(host, [str(c) for c in command]), stdout=subprocess.PIPE, text=True,
                            start_new_session=True, **kwargs)


def hivemind(network, a, codec):
    with tempfile.TemporaryDirectory() as meeting:
        rows = gather([start(network, rank, [a.python, os.path.join(HERE, "peer.py"), "--rank", rank, "--peers", PEERS, "--address",
                                             network.address(rank), "--meeting", meeting, "--parameters", a.parameters, "--rounds",
                                             a.rounds, "--codec", codec]) for rank in range(PEERS)])
    return rows, a.parameters * HIVEMIND_BITS[codec] / 8


def stagecoach(network, a, codec):
    listen = [f"{network.address(rank)}:7100" for rank in range(PEERS)]
    with tempfile.TemporaryDirectory() as meeting:
        rows = gather([start(network, rank, [f"{a.build}/bench/bench_averaging", "--rank", rank, "--listen", listen[rank], "--peers",
                                             ",".join(listen), "--codec", codec, "--parameters", a.parameters, "--rounds", a.rounds,
                                             "--uplink-mbit", a.rate * GOODPUT, "--idle-seconds", a.idle_seconds, "--meeting",
                                             meeting]) for rank in range(PEERS)])
    if rows[0]["hashes"] != rows[1]["hashes"]:
        raise RuntimeError("the two workers hold other bits")
    return rows, rows[0]["payload_bytes"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", default="100/50", help="RATE/RTT in Mbit/s and ms")
    parser.add_argument("--parameters", type=int, default=8000000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=["hivemind", "stagecoach"])
    parser.add_argument("--codec", action="append", help="of ours: fp32, bf16, int8, int4")
    parser.add_argument("--idle-seconds", type=float, default=2, help="before each of our rounds; hivemind forms its group meanwhile")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--python", default="/opt/stagecoach/hivemind-venv/bin/python")
    parser.add_argument("--output")
    a = parser.parse_args()
    a.rate, rtt = (float(x) for x in a.shape.split("/"))
    cases = [] if a.only == "stagecoach" else [("hivemind", hivemind, codec) for codec in HIVEMIND_BITS]
    cases += [] if a.only == "hivemind" else [("stagecoach", stagecoach, codec) for codec in a.codec or ["fp32", "bf16", "int8", "int4"]]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the network is removed
    results = []
    for who, measure, codec in cases:
        with StarNetwork(f"{a.build}/bench/wan_link", PEERS, a.rate, rtt) as network:
            rows, payload = measure(network, a, codec)
        slower = [max(pair) for pair in zip(*(row["seconds"] for row in rows))]
        median, line = statistics.median(slower), payload * 8 / (a.rate * 1e6)
        results.append({"who": who, "codec": codec, "seconds": median, "all_seconds": slower, "payload_bytes": payload,
                        "line_seconds": line, "of_line": line / median, "of_formula": (line + rtt / 2000) / median})
        print(json.dumps(results[-1]), flush=True)
    if a.output:
        with open(a.output, "w", encoding="utf-8") as out:
            json.dump(results, out, indent=1)


if __name__ == "__main__":
    main()
