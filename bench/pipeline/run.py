#!/usr/bin/env python3
"""Throughput of a whole local fleet over emulated links, as a share of the same run without links.

Each row is two runs of `stagecoach train`: one over the links, whose plan decides J and the windows, and one with
`--links none --like` the first, so that both do the same arithmetic (their weight hashes are compared). They alternate,
`--rounds` times; figures are medians. Baselines (sync-1f1b, dense bf16) run in the same call.

Prints JSON. Runs alone on the machine, or the figures mean nothing.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

SPEC = """
name: pipeline-bench
seed: 1
threads: 1
model:
  architecture: llama
  width: {width}
  layers: {layers}
  heads: 4
  compression: {compression}
{subspace}
data:
  path: {data}
  validation_fraction: 0.1
optimizer:
  kind: adamw
  learning_rate: 0.001
  warmup_steps: 1
schedule:
  kind: {schedule}
  steps: {steps}
  microbatches: {microbatches}
  sequences: 2
  sequence_tokens: 128
  sync_warmup_steps: 0
wire:
  format: {wire}
evaluation:
  microbatches: 0
"""

KINDS = {
    "fd-2bw subspace int8": dict(schedule="fd-2bw", compression="subspace", wire="int8"),
    "sync-1f1b subspace int8": dict(schedule="sync-1f1b", compression="subspace", wire="int8"),
    "fd-2bw dense bf16": dict(schedule="fd-2bw", compression="none", wire="bf16"),
    "sync-1f1b dense bf16": dict(schedule="sync-1f1b", compression="none", wire="bf16"),
}
PROFILES = ["80mbit/50ms", "10mbit/150ms", "80mbit/150ms", "1000mbit/10ms"]


def spec_text(kind, data, width, layers, steps, microbatches):
    choice = KINDS[kind]
    subspace = "  rank: 32\n  tail_layers: 1" if choice["compression"] == "subspace" else ""
    return SPEC.format(data=data, width=width, layers=layers, steps=steps, microbatches=microbatches,
                       subspace=subspace, **choice)


def train(program, spec, folder, workers, links, more):
    """One run; returns its report."""
    folder.mkdir(parents=True)
    config, report = folder / "spec.yaml", folder / "report.json"
    config.write_text(spec)
    command = [program, "train", "--config", config, "--run-dir", folder / "run", "--workers", workers, "--links",
               links, "--report", report, "--no-sample"] + more
    done = subprocess.run([str(part) for part in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          timeout=1800)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr}")
    return json.loads(report.read_text())


def row(program, name, spec, folder, workers, links, rounds, more):
    over, ideal = [], []
    like = None
    for number in range(rounds):
        same = [] if like is None else ["--like", like]
        over.append(train(program, spec, folder / f"{number}-links", workers, links, same + more))
        like = like or folder / f"{number}-links" / "run"
        ideal.append(train(program, spec, folder / f"{number}-none", workers, "none", ["--like", like] + more))
    if len({report["weight_hash"] for report in over + ideal}) != 1:
        sys.exit(f"{name} over {links}: the weight hashes differ")
    speed = statistics.median(report["tokens_per_second"] for report in over)
    ceiling = statistics.median(report["tokens_per_second"] for report in ideal)
    first = over[0]
    return {
        "case": name, "links": links, "stages": workers, "tokens_per_second": round(speed, 1),
        "without_links": round(ceiling, 1), "percent_of_ideal": round(100 * speed / ceiling, 1),
        "predicted": round(first["predicted_tokens_per_second"], 1), "j": first["j"], "phi": first["phi"],
        "window": first["window"], "microbatches": first["microbatches_per_step"],
        "wire_bytes_per_token": [boundary["forward"] for boundary in first["wire_bytes_per_token"]],
        "rounds": rounds, "loss": first["loss"][-1] if first["loss"] else None,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--bin", default=str(root / "build" / "bin"), help="folder of the programs")
    parser.add_argument("--data", default=str(root / "docs"), help="text file or folder")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--microbatches", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--baseline-rounds", type=int, default=1, help="rounds of every kind but the first")
    parser.add_argument("--profiles", nargs="*", default=PROFILES)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--sleeping", action="store_true",
                        help="stages that sleep instead of computing, and 8 of them at 200/50")
    parser.add_argument("--no-compute", action="store_true", help="only the sleeping ones")
    parser.add_argument("--report", help="write the JSON to this file too")
    arguments = parser.parse_args()
    program = os.path.join(arguments.bin, "stagecoach")
    rows = []
    with tempfile.TemporaryDirectory(prefix="stagecoach-bench-") as scratch:
        scratch = pathlib.Path(scratch)
        # Prepared once: every run must see the same tokens.
        data = scratch / "data"
        subprocess.run([os.path.join(arguments.bin, "stagecoach-model"), "prepare", arguments.data, "--output", str(data)],
                       check=True, stdout=subprocess.DEVNULL)
        for kind in [] if arguments.no_compute else arguments.kinds:
            spec = spec_text(kind, data, 256, 8, arguments.steps, arguments.microbatches)
            for links in arguments.profiles:
                folder = scratch / f"{len(rows)}"
                rounds = arguments.rounds if kind == arguments.kinds[0] else arguments.baseline_rounds
                rows.append(row(program, kind, spec, folder, 4, links, rounds, []))
                print(f"{kind:26} {links:14} {rows[-1]['percent_of_ideal']:6.1f} % of ideal", file=sys.stderr)
        if arguments.sleeping:
            # Two units a stage, 8 + 16 ms each: t* = 48 ms whatever else the machine has to do.
            sleep = ["--executor", "fake:8/16"]
            cases = [(kind, 4, 6, links) for kind in arguments.kinds for links in arguments.profiles]
            cases.append(("fd-2bw subspace int8", 8, 14, "200mbit/50ms"))
            for kind, workers, layers, links in cases:
                spec = spec_text(kind, data, 256, layers, arguments.steps, 4 * workers)
                rows.append(row(program, kind + ", sleeping", spec, scratch / f"{len(rows)}", workers, links,
                                arguments.rounds, sleep))
                print(f"{rows[-1]['case']:34} {workers} {links:14} {rows[-1]['percent_of_ideal']:6.1f} % of ideal",
                      file=sys.stderr)
    result = {"machine": {"cores": os.cpu_count(), "load_before": os.getloadavg()[1]}, "rows": rows}
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.report:
        pathlib.Path(arguments.report).write_text(text + "\n")


if __name__ == "__main__":
    main()
