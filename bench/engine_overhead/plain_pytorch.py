#!/usr/bin/env python3
"""The plain PyTorch loop of engine_overhead: the same model (dense Llama-style, d 256, 4 blocks, feed-forward 704, 256 ids), the
same microbatches (4 a step of 4 x 256 tokens), AdamW, clipping, one thread. Prints one JSON line.

usage: plain_pytorch.py [rounds]     (a python that has torch 2.11.0: bench/peers/setup_venv.sh)
"""
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F

WIDTH, LAYERS, HEADS, HIDDEN, IDS, TOKENS, SEQUENCES, MICROBATCHES = 256, 4, 4, 704, 256, 256, 4, 4


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        linear = lambda i, o: torch.nn.Linear(i, o, bias=False)
        self.n1, self.n2 = torch.nn.RMSNorm(WIDTH, eps=1e-5), torch.nn.RMSNorm(WIDTH, eps=1e-5)
        self.q, self.k, self.v, self.o = (linear(WIDTH, WIDTH) for _ in range(4))
        self.gate, self.up, self.down = linear(WIDTH, HIDDEN), linear(WIDTH, HIDDEN), linear(HIDDEN, WIDTH)

    def forward(self, x, cos, sin):
        b, t, d = x.shape
        rope = lambda y: torch.cat([y.chunk(2, -1)[0] * cos - y.chunk(2, -1)[1] * sin,
                                    y.chunk(2, -1)[0] * sin + y.chunk(2, -1)[1] * cos], -1)
        h = self.n1(x)
        q, k, v = (m(h).view(b, t, HEADS, -1).transpose(1, 2) for m in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(rope(q), rope(k), v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, d))
        h = self.n2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(IDS, WIDTH)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = torch.nn.RMSNorm(WIDTH, eps=1e-5), torch.nn.Linear(WIDTH, IDS, bias=False)
        for p in self.parameters():
            if p.dim() == 2:
                torch.nn.init.normal_(p, std=0.02)
        half = WIDTH // HEADS // 2
        angles = torch.arange(TOKENS)[:, None] / 10000 ** (torch.arange(half)[None, :] / half)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, ids, labels):
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return F.cross_entropy(self.head(self.norm(x)).view(-1, IDS), labels.reshape(-1))


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
    data = torch.randint(IDS, (rounds + 1, MICROBATCHES, SEQUENCES, TOKENS + 1))
    wall, cpu = [], []
    for step in range(rounds + 1):
        begin = time.perf_counter(), time.process_time()
        optimizer.zero_grad()
        for batch in data[step]:
            loss = model(batch[:, :-1], batch[:, 1:])
            (loss / MICROBATCHES).backward()
            loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step > 0:
            wall.append(time.perf_counter() - begin[0])
            cpu.append(time.process_time() - begin[1])
    tokens = MICROBATCHES * SEQUENCES * TOKENS
    print(json.dumps({"rounds": rounds, "pytorch_tokens_per_second": round(tokens / statistics.median(wall), 1),
                      "pytorch_tokens_per_cpu_second": round(tokens / min(cpu), 1)}))


if __name__ == "__main__":
    main()
