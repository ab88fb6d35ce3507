"""Our safetensors files against the reference implementation (PyPI `safetensors`), in both directions.

Usage: safetensors_python.py PROGRAM SCRATCH_FOLDER. Exit code 77: the package cannot be had here (ctest: skipped).
"""
import hashlib
import pathlib
import subprocess
import sys
import venv

program, scratch = sys.argv[1], pathlib.Path(sys.argv[2])
packages = scratch / "venv"
if len(sys.argv) == 3:
    # The packages live in a virtual environment of this test, made once.
    python = packages / "bin" / "python"
    ready = packages / "ready"
    if not ready.exists():
        venv.create(packages, with_pip=True, clear=True)
        install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries", "1", "--timeout", "20",
                   "safetensors", "numpy"]
        if subprocess.run(install, stdout=subprocess.DEVNULL, timeout=240, check=False).returncode != 0:
            print("SKIPPED: the PyPI packages safetensors and numpy cannot be installed here")
            sys.exit(77)
        ready.touch()
    sys.exit(subprocess.run([python, __file__, program, str(scratch), "inside"], check=False).returncode)

import numpy  # noqa: E402
from safetensors import safe_open  # noqa: E402
from safetensors.numpy import load_file, save_file  # noqa: E402

ours = scratch / "ours.safetensors"
subprocess.run([program, "write", ours], check=True)
tensors = load_file(ours)
assert set(tensors) == {"w.0.units.1.attention.q", "counter", 'caf\u00e9 "quoted"', "empty", "scalar"}, sorted(tensors)
expected = numpy.array([[0.0, -1.5, 3.25], [1e-30, 1e30, 42.0]], dtype=numpy.float32)
assert numpy.array_equal(tensors["w.0.units.1.attention.q"], expected)
assert tensors["counter"].tolist() == [1, 2**64 - 1]
assert bytes(tensors['caf\u00e9 "quoted"']) == b"abc"
assert tensors["empty"].shape == (0, 4) and tensors["scalar"].shape == ()
with safe_open(ours, framework="numpy") as file:
    assert file.metadata() == {"step": "12", "nadam_product": "0x1.8p-1"}, file.metadata()

theirs = scratch / "theirs.safetensors"
made = {
    "b": numpy.arange(24, dtype=numpy.float32).reshape(2, 3, 4),
    "a": numpy.arange(5, dtype=numpy.uint8),
    "c": numpy.array(7, dtype=numpy.int64),
    "d": numpy.zeros((0, 2), dtype=numpy.float16),
}
save_file(made, theirs, metadata={"k": "v"})
read = subprocess.run([program, "read", theirs], check=True, capture_output=True, text=True).stdout.splitlines()
kinds = {"float32": "F32", "uint8": "U8", "int64": "I64", "float16": "F16"}
want = [
    f"{name} {kinds[str(array.dtype)]} [{','.join(map(str, array.shape))}] {hashlib.sha256(array.tobytes()).hexdigest()}"
    for name, array in sorted(made.items())
]
assert read == want + ["k=v"], (read, want)
print("both directions agree: 5 tensors written, 4 read")
