#!/usr/bin/env python3
"""One rank of the PyTorch side: torch.distributed.pipelining (1F1B) over gloo, one stage a process, one thread.

The model is the dense Llama-style decoder of Stagecoach (pre-norm RMSNorm, RoPE, SwiGLU, untied head, fp32), AdamW with the
same schedule and clipping; the microbatches come from a file that Stagecoach's own data order wrote.
Prints one JSON line on the last rank.
"""
import argparse
import json
import math
import os
import time

import numpy
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


class Block(torch.nn.Module):
    def __init__(self, a):
        super().__init__()
        self.heads, d, f = a.heads, a.width, a.feedforward
        self.n1, self.n2 = torch.nn.RMSNorm(d, eps=1e-5), torch.nn.RMSNorm(d, eps=1e-5)
        self.q, self.k, self.v, self.o = (torch.nn.Linear(d, d, bias=False) for _ in range(4))
        self.gate, self.up, self.down = (torch.nn.Linear(d, f, bias=False), torch.nn.Linear(d, f, bias=False),
                                         torch.nn.Linear(f, d, bias=False))
        head = d // self.heads
        angles = torch.arange(a.tokens)[:, None] / 10000 ** (torch.arange(0, head, 2)[None, :] / head)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        for p in self.parameters():
            if p.dim() == 2:
                torch.nn.init.normal_(p, std=0.02)
        for p in (self.o.weight, self.down.weight):
            torch.nn.init.normal_(p, std=0.02 / math.sqrt(2 * a.layers))

    def rope(self, x):
        x1, x2 = x.chunk(2, -1)
        return torch.cat([x1 * self.cos - x2 * self.sin, x1 * self.sin + x2 * self.cos], -1)

    def forward(self, x):
        b, t, d = x.shape
        h = self.n1(x)
        q, k, v = (m(h).view(b, t, self.heads, -1).transpose(1, 2) for m in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(self.rope(q), self.rope(k), v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, d))
        h = self.n2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Stage(torch.nn.Module):
    def __init__(self, a, first, end):
        super().__init__()
        self.embedding = torch.nn.Embedding(a.vocabulary, a.width) if first == 0 else None
        if self.embedding is not None:
            torch.nn.init.normal_(self.embedding.weight, std=0.02)
        self.blocks = torch.nn.ModuleList(Block(a) for _ in range(first, end))
        self.last = end == a.layers
        if self.last:
            self.norm = torch.nn.RMSNorm(a.width, eps=1e-5)
            self.head = torch.nn.Linear(a.width, a.vocabulary, bias=False)
            torch.nn.init.normal_(self.head.weight, std=0.02)

    def forward(self, x):
        if self.embedding is not None:
            x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)) if self.last else x


def rate(a, t):
    warmup = max(1, a.steps // 10)
    if t < warmup:
        return a.learning_rate * (t + 1) / warmup
    return a.learning_rate * (0.1 + 0.9 * (1 + math.cos(math.pi * (t - warmup) / (a.steps - warmup))) / 2)


def main():
    p = argparse.ArgumentParser()
    for name, kind in (("rank", int), ("world", int), ("master", str), ("interface", str), ("microbatches-file", str),
                       ("steps", int), ("microbatches", int), ("sequences", int), ("tokens", int), ("width", int),
                       ("layers", int), ("heads", int), ("feedforward", int), ("vocabulary", int), ("learning-rate", float)):
        p.add_argument("--" + name, type=kind, required=True)
    a = p.parse_args()
    os.environ["GLOO_SOCKET_IFNAME"] = a.interface
    torch.set_num_threads(1)
    torch.manual_seed(1 + a.rank)
    dist.init_process_group("gloo", init_method=f"tcp://{a.master}", rank=a.rank, world_size=a.world)
    data = numpy.fromfile(a.microbatches_file, dtype=numpy.uint16).astype(numpy.int64)
    rows = a.microbatches * a.sequences
    data = torch.from_numpy(data.reshape(-1, rows, a.tokens + 1))       # step, row, token
    bounds = [a.layers * i // a.world for i in range(a.world + 1)]
    module = Stage(a, bounds[a.rank], bounds[a.rank + 1])
    stage = PipelineStage(module, a.rank, a.world, torch.device("cpu"))

    def loss_of(logits, labels):
        return F.cross_entropy(logits.reshape(-1, a.vocabulary), labels.reshape(-1))

    schedule = Schedule1F1B(stage, a.microbatches, loss_fn=loss_of)
    decay = [q for q in module.parameters() if q.dim() == 2]
    plain = [q for q in module.parameters() if q.dim() != 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
                                  lr=a.learning_rate, betas=(0.9, 0.95), eps=1e-8)
    losses, marks = [], []
    for t in range(a.steps):
        ids, labels = data[t, :, :-1].contiguous(), data[t, :, 1:].contiguous()
        step_losses = []
        if a.rank == 0:
            schedule.step(ids)
        elif a.rank == a.world - 1:
            schedule.step(target=labels, losses=step_losses)
        else:
            schedule.step()
        # One global norm over all stages, as in Stagecoach.
        square = sum((q.grad.double() ** 2).sum() for q in module.parameters())
        dist.all_reduce(square)
        scale = min(1.0, 1.0 / (math.sqrt(square.item()) + 1e-6))
        for q in module.parameters():
            q.grad.mul_(scale)
        for group in optimizer.param_groups:
            group["lr"] = rate(a, t)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        marks.append(time.monotonic())
        if step_losses:
            losses.append(float(torch.stack(step_losses).mean()))
    if a.rank == a.world - 1:
        tokens = rows * a.tokens
        print(json.dumps({"tokens_per_second": tokens * (a.steps - 2) / (marks[-1] - marks[1]), "loss": losses,
                          "tokens": tokens * a.steps}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
