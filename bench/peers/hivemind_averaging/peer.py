#!/usr/bin/env python3
"""One hivemind peer: averages one vector with the others, several times. Prints one JSON line with the seconds of each round.

Every round first forms its group and stops there (require_trigger); when all peers have written so into --meeting, the exchange
alone is timed, from its release to its result. Peer 0 is the others' first contact.
"""
import argparse
import json
import os
import time

import hivemind
import torch
from hivemind.averaging import DecentralizedAverager
from hivemind.averaging.control import AveragingStage
from hivemind.compression import Float16Compression, NoCompression

DEADLINE = 60  # seconds for a group to form, or a round to end: several times what any takes


def until(condition, what):
    end = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.002)


def main():
    parser = argparse.ArgumentParser()
    for name, kind in (("rank", int), ("peers", int), ("address", str), ("meeting", str), ("parameters", int), ("rounds", int),
                       ("codec", str)):
        parser.add_argument("--" + name, type=kind, required=True)
    a = parser.parse_args()
    torch.set_num_threads(1)

    def meet(word, text=""):
        mine = os.path.join(a.meeting, f"{word}.{a.rank}")
        with open(mine + ".new", "w", encoding="utf-8") as out:
            out.write(text)
        os.rename(mine + ".new", mine)
        until(lambda: all(os.path.exists(os.path.join(a.meeting, f"{word}.{r}")) for r in range(a.peers)), word)

    contact = os.path.join(a.meeting, "contact.0")
    first = []
    if a.rank != 0:
        until(lambda: os.path.exists(contact), "peer 0")
        with open(contact, encoding="utf-8") as file:
            first = json.load(file)
    dht = hivemind.DHT(start=True, initial_peers=first, host_maddrs=[f"/ip4/{a.address}/tcp/0"], use_ipfs=False)
    meet("contact", json.dumps([str(m) for m in dht.get_visible_maddrs()]))
    generator = torch.Generator().manual_seed(7 + a.rank)
    vector = torch.rand(a.parameters, generator=generator) - 0.5
    averager = DecentralizedAverager(
        [vector], dht, prefix="bench", target_group_size=a.peers, min_group_size=a.peers, min_matchmaking_time=2.0, request_timeout=1.0,
        compression=Float16Compression() if a.codec == "fp16" else NoCompression(), allreduce_timeout=DEADLINE, start=True)
    seconds, wrong = [], 0.0
    mean = sum(torch.rand(a.parameters, generator=torch.Generator().manual_seed(7 + r)) - 0.5 for r in range(a.peers)) / a.peers
    for number in range(a.rounds):
        with averager.get_tensors() as tensors:
            tensors[0].copy_(vector)
        control = averager.step(wait=False, require_trigger=True, timeout=2 * DEADLINE)
        until(lambda: control.stage == AveragingStage.AWAITING_TRIGGER, "a group")
        meet(f"round{number}")
        start = time.monotonic()
        control.allow_allreduce()
        if control.result(timeout=DEADLINE) is None:
            raise RuntimeError("the round failed")
        seconds.append(time.monotonic() - start)
        with averager.get_tensors() as tensors:
            wrong = max(wrong, float((tensors[0] - mean).abs().max()))
        meet(f"done{number}")
    print(json.dumps({"rank": a.rank, "codec": a.codec, "seconds": seconds, "largest_error": wrong}), flush=True)
    meet("end")
    averager.shutdown()
    dht.shutdown()


if __name__ == "__main__":
    main()
