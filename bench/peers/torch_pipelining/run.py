#!/usr/bin/env python3
"""Stagecoach against torch.distributed.pipelining (1F1B over gloo): same model, data order and microbatches, equal links.

usage: run.py [--shape 80/50|none ...] [--runs 1] [--steps 20] [--output FILE.json]

Each shape is run for both in turn on this machine: "none" on loopback, "RATE/RTT" (Mbit/s, ms) in a star of network namespaces
(../star_network.py) where every worker has that uplink and downlink. Needs root, the programs and benchmarks built
(scripts/setup.sh --tests), and a virtual environment with torch and numpy (--python; made by ../setup_venv.sh).
Stagecoach runs twice: dense fp32 (the same arithmetic as the peer, FD-2BW schedule) and through a subspace with int8.
"""
import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "..", "..", ".."))
sys.path.insert(0, os.path.join(HERE, ".."))
from star_network import StarNetwork  # noqa: E402

WORLD = 4
MODEL = {"width": 256, "layers": 8, "heads": 4, "feedforward": 704, "vocabulary": 256}
BATCH = {"microbatches": 8, "sequences": 4, "tokens": 256}
LEARNING_RATE = 1e-3


def run_spec(path, run_dir, data, steps, variant):
    subspace = variant == "subspace-int8"
    optimizer = "adamw"
    text = f"""name: peer
seed: 1
threads: 1
run_dir: {run_dir}
model:
  architecture: llama
  width: {MODEL['width']}
  layers: {MODEL['layers']}
  heads: {MODEL['heads']}
  feedforward: {MODEL['feedforward']}
  vocabulary: {MODEL['vocabulary']}
  compression: {'subspace' if subspace else 'none'}
{'  rank: 32' if subspace else '  norm: pre'}
data: {{path: {data}}}
optimizer: {{kind: {optimizer}, learning_rate: {LEARNING_RATE}, weight_decay: 0.1}}
schedule:
  kind: fd-2bw
  steps: {steps}
  microbatches: {BATCH['microbatches']}
  sequences: {BATCH['sequences']}
  sequence_tokens: {BATCH['tokens']}
wire: {{format: {'int8' if subspace else ('bf16' if variant == 'dense-bf16' else 'fp32')}}}
evaluation: {{microbatches: 0}}
"""
    if variant == "sync-fp32":
        text = text.replace("kind: fd-2bw", "kind: sync-1f1b")
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)


def wait_all(processes, deadline):
    end = time.monotonic() + deadline
    for process in processes:
        code = process.wait(max(1, end - time.monotonic()))
        if code != 0:
            raise RuntimeError(f"{process.args} ended with {code}")


def torch_peer(network, python, microbatches_file, steps, scratch):
    address = network.address(0) if network else "127.0.0.1"
    processes = []
    out = open(os.path.join(scratch, "peer.json"), "w+", encoding="utf-8")
    for rank in range(WORLD):
        command = [python, os.path.join(HERE, "peer.py"), "--rank", rank, "--world", WORLD, "--master", f"{address}:29511",
                   "--interface", "wan0" if network else "lo", "--microbatches-file", microbatches_file, "--steps", steps,
                   "--learning-rate", LEARNING_RATE]
        for key, value in {**MODEL, **BATCH}.items():
            command += ["--" + key, value]
        command = [str(c) for c in command]
        log = open(os.path.join(scratch, f"peer-{rank}.log"), "w", encoding="utf-8")
        processes.append(subprocess.Popen(network.on(rank, command) if network else command,
                                          stdout=out if rank == WORLD - 1 else log, stderr=log))
    try:
        wait_all(processes, 1800)
    finally:
        for process in processes:
            process.kill()
    out.seek(0)
    return json.loads(out.read().strip().splitlines()[-1])


def stagecoach(network, binaries, data, steps, variant, scratch):
    """A coordinator in the hub and a worker in each host, started by hand as an operator would on separate machines."""
    run_dir = os.path.join(scratch, variant)
    os.makedirs(run_dir)
    spec = os.path.join(scratch, variant + ".yaml")
    run_spec(spec, run_dir, data, steps, variant)
    on = network.on if network else lambda host, command: command
    log = open(os.path.join(scratch, variant + ".log"), "w", encoding="utf-8")
    port = 50151
    listen = f"0.0.0.0:{port}" if network else f"127.0.0.1:{port}"
    coordinator = subprocess.Popen(on(None, [f"{binaries}/stagecoach-coordinator", "--listen", listen, "--state-dir",
                                             os.path.join(run_dir, "state"), "--insecure", "--port-file", run_dir + "/port"]),
                                   stdout=log, stderr=log)
    deadline = time.monotonic() + 30
    while not os.path.exists(run_dir + "/port") and time.monotonic() < deadline:
        time.sleep(0.05)
    workers = []
    try:
        for w in range(WORLD):
            own = f"{network.address(w)}:7000" if network else f"127.0.0.1:{7000 + w}"
            hub = f"{network.hub_address(w)}:{port}" if network else listen
            workers.append(subprocess.Popen(on(w, [f"{binaries}/stagecoach-worker", "--coordinator", hub, "--listen", own,
                                                   "--advertise", own, "--name", f"w{w}", "--threads", "1", "--insecure"]),
                                            stdout=log, stderr=log))
        local = f"{network.hub_address(0)}:{port}" if network else listen
        report = os.path.join(scratch, variant + ".json")
        subprocess.run(on(None, [f"{binaries}/stagecoach", "submit", spec, "--coordinator", local, "--workers", str(WORLD),
                                 "--watch", "--report", report]), stdout=log, stderr=log, check=True, timeout=1800)
        with open(report, encoding="utf-8") as file:
            return json.load(file)
    finally:
        for process in workers + [coordinator]:
            process.kill()
            process.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", action="append", help="none or RATE/RTT; repeatable")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--data", required=True, help="folder made by stagecoach-model prepare (bytes)")
    parser.add_argument("--python", default="/opt/stagecoach/bench-venv/bin/python")
    parser.add_argument("--variant", action="append", help="dense-fp32, dense-bf16, subspace-int8, sync-fp32")
    parser.add_argument("--output")
    arguments = parser.parse_args()
    variants = arguments.variant or ["dense-fp32", "subspace-int8"]
    rows = []
    for shape in arguments.shape or ["none", "80/50"]:
        for run in range(arguments.runs):
            with tempfile.TemporaryDirectory() as scratch:
                microbatches = os.path.join(scratch, "microbatches.bin")
                subprocess.run([f"{arguments.build}/bench/dump_microbatches", arguments.data, microbatches, "1", str(arguments.steps),
                                str(BATCH["microbatches"]), str(BATCH["sequences"]), str(BATCH["tokens"]), "0.02"], check=True)
                if shape == "none":
                    context = contextlib.nullcontext()
                else:
                    rate, rtt = (float(x) for x in shape.split("/"))
                    context = StarNetwork(f"{arguments.build}/bench/wan_link", WORLD, rate, rtt)
                with context as network:
                    row = {"shape": shape, "run": run}
                    peer = torch_peer(network, arguments.python, microbatches, arguments.steps, scratch)
                    row["torch"] = {"tokens_per_second": peer["tokens_per_second"], "final_loss": peer["loss"][-1]}
                    for variant in variants:
                        ours = stagecoach(network, f"{arguments.build}/bin", arguments.data, arguments.steps, variant, scratch)
                        row[variant] = {"tokens_per_second": ours["tokens_per_second"], "final_loss": ours["loss"][-1],
                                        "ratio": ours["tokens_per_second"] / peer["tokens_per_second"]}
                    rows.append(row)
                    print(json.dumps(row), flush=True)
    summary = {}
    for shape in {row["shape"] for row in rows}:
        for variant in variants:
            ratios = [row[variant]["ratio"] for row in rows if row["shape"] == shape]
            summary[f"{shape} {variant}"] = statistics.median(ratios)
    print(json.dumps({"median_ratio_to_torch": summary}, indent=1))
    if arguments.output:
        with open(arguments.output, "w", encoding="utf-8") as out:
            json.dump({"rows": rows, "median_ratio_to_torch": summary}, out, indent=1)


if __name__ == "__main__":
    main()
