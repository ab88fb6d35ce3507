#!/usr/bin/env python3
"""A rule that cannot fail is no rule: breaks each one in a scratch repository and expects to be told."""
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
BROKEN = {
    "worker/domain/a.h": ("#pragma once\n#include <mutex>\n", "pure decisions"),
    "coordinator/service/b.h": ('#pragma once\n#include "worker/link/peer_link.h"\n', "must not include"),
    "worker/main/c.cc": ("#include <ATen/ATen.h>\n#include <grpcpp/grpcpp.h>\n", "in one file"),
    "model/d.cc": ("#include <grpcpp/grpcpp.h>\n", "gRPC headers"),
    "cli/e.cc": ("#include <ATen/ATen.h>\n", "torch headers"),
    "common/string_utils.h": ("#pragma once\n", "named for its concept"),
    "common/f.cc": ("\n" * 601, "601 lines"),
    "common/g.h": ("int x;\n", "no #pragma once"),
}
failed = 0
with tempfile.TemporaryDirectory() as root:
    subprocess.run(["git", "init", "-q", root], check=True)
    for path, (text, _) in BROKEN.items():
        os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
        with open(os.path.join(root, path), "w", encoding="utf-8") as out:
            out.write(text)
    result = subprocess.run([sys.executable, os.path.join(HERE, "source_rules.py"), root], capture_output=True, text=True, check=False)
    for path, (_, expected) in BROKEN.items():
        if not any(line.startswith(path + ":") and expected in line for line in result.stdout.splitlines()):
            print(f"{path}: expected a complaint with '{expected}'")
            failed = 1
    if result.returncode != 1:
        print("expected exit status 1")
        failed = 1
print("source rules self-test:", "FAILED" if failed else "ok")
sys.exit(failed)
