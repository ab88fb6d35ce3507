#!/usr/bin/env python3
"""Checks the rules of docs/architecture.md that a compiler does not: who includes what, forbidden tokens, file sizes, names.

usage: source_rules.py [--table] [ROOT]      --table prints the size table. Exit status 1 if a rule is broken.
"""
import os
import re
import statistics
import subprocess
import sys

PRODUCT = ("common", "model", "coordinator", "worker", "cli")
# folder prefix -> product folders that its files may include (longest prefix wins).
ALLOWED = {
    "common/codec": ("common",),
    "common/grpc": ("common", "protos"),
    "common/run_spec": ("common", "protos"),
    "common/checkpoint": ("common", "protos"),
    "common": ("common",),
    "model": ("common", "model", "protos"),
    "coordinator/domain": ("common", "coordinator/domain"),
    "coordinator/store": ("common", "coordinator/domain", "coordinator/store"),
    "coordinator/planning_files": ("common", "coordinator/domain", "coordinator/planning_files", "protos"),
    "coordinator": ("common", "model/data", "coordinator", "protos"),
    "worker/domain": ("common", "worker/domain"),
    "worker/tensor": ("common", "worker/tensor", "protos"),
    "worker/link": ("common", "worker/tensor", "worker/link", "worker/domain", "protos"),
    "worker/average": ("common", "worker/average", "worker/link", "worker/tensor"),
    "worker/control": ("common", "worker/control", "worker/domain", "protos"),
    "worker/compute": ("common", "model", "worker/compute", "worker/tensor", "worker/domain"),
    "worker": ("common", "model", "worker", "protos"),
    "cli": ("common", "cli", "coordinator/domain", "coordinator/planning_files", "model/data", "protos"),
}
GRPC_ALLOWED = re.compile(r"^(common/grpc/|coordinator/(service|main)/|worker/link/grpc_|worker/link/link_probe|"
                          r"worker/control/grpc_|worker/main/|cli/)")
TORCH_ALLOWED = re.compile(r"^(model/|worker/compute/torch_)")
DOMAIN_FORBIDDEN = [r"\bgrpc\b", r"\.pb\.h", r"\btorch\b", r"\bprometheus\b", r"<thread>", r"<mutex>", r"\bNow\(", r"\bgetenv\b",
                    r"<random>", r"std::string_view"]
BANNED_NAME = re.compile(r"(^|_)(utils?|misc|helpers?|manager|base)(_|\.|$)")
LIMITS = {".cc": 600, ".h": 300}
TEST_LIMIT = 800
GRPC_INCLUDE = re.compile(r'#include\s*[<"](grpcpp|grpc)/|\.grpc\.pb\.h"')
PROTO_INCLUDE = re.compile(r'#include\s*[<"](google/protobuf/|protos/)')
TORCH_INCLUDE = re.compile(r'#include\s*[<"](torch|ATen|c10)/')


def code_only(text):
    """Without comments and string literals, so that a word in prose breaks no rule."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    return re.sub(r"//[^\n]*", "", text)


def check(root):
    tracked = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True,
                             check=True).stdout.split("\n")
    files = [f for f in tracked if f.endswith((".h", ".cc")) and os.path.exists(os.path.join(root, f))]
    problems, sizes = [], {}
    for path in files:
        text = open(os.path.join(root, path), encoding="utf-8").read()
        code = code_only(text)
        lines = text.count("\n")
        extension = os.path.splitext(path)[1]
        sizes.setdefault(("tests" if path.startswith(("tests/", "bench/")) else "product", extension), []).append((lines, path))
        limit = TEST_LIMIT if path.startswith(("tests/", "bench/")) else LIMITS[extension]
        if lines > limit:
            problems.append(f"{path}: {lines} lines, the limit is {limit}: find the second concept and give it a file")
        if BANNED_NAME.search(os.path.basename(path)):
            problems.append(f"{path}: a file is named for its concept, not utils, misc, helper, manager or base")
        if TORCH_INCLUDE.search(code) and (GRPC_INCLUDE.search(code) or PROTO_INCLUDE.search(code)):
            problems.append(f"{path}: torch and gRPC/protobuf headers in one file")
        if not path.startswith(PRODUCT):
            continue
        if GRPC_INCLUDE.search(code) and not GRPC_ALLOWED.search(path):
            problems.append(f"{path}: gRPC headers do not belong here")
        if TORCH_INCLUDE.search(code) and not TORCH_ALLOWED.search(path):
            problems.append(f"{path}: torch headers do not belong here")
        prefix = max((p for p in ALLOWED if path.startswith(p + "/")), key=len)
        for include in re.findall(r'#include\s*"([^"]+)"', code):
            if not include.startswith(PRODUCT + ("protos", "tests", "bench")):
                continue
            if not include.startswith(tuple(a + "/" for a in ALLOWED[prefix])):
                problems.append(f"{path}: must not include {include} (allowed: {', '.join(ALLOWED[prefix])})")
        if "/domain/" in path or path.startswith("common/averaging/"):
            for token in DOMAIN_FORBIDDEN:
                if re.search(token, code):
                    problems.append(f"{path}: `{token}` in a folder of pure decisions")
        if extension == ".h" and "#pragma once" not in text:
            problems.append(f"{path}: no #pragma once")
    return problems, sizes


def main():
    arguments = [a for a in sys.argv[1:] if a != "--table"]
    root = arguments[0] if arguments else os.path.join(os.path.dirname(__file__), "..", "..")
    problems, sizes = check(root)
    if "--table" in sys.argv:
        print("files            count  median   p90   max  largest")
        for (kind, extension), rows in sorted(sizes.items()):
            lines = sorted(n for n, _ in rows)
            largest = max(rows)
            print(f"{kind:8} {extension:5} {len(lines):8} {statistics.median(lines):7.0f} {lines[int(0.9 * (len(lines) - 1))]:5}"
                  f" {lines[-1]:5}  {largest[1]}")
    for problem in problems:
        print(problem)
    print(f"source rules: {len(problems)} broken")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
