"""Building, caching and the ways it can fail."""

import os
import subprocess
import sys

import pytest
import torch

from draftproof import native
from draftproof.native import bench, build
from native.reference import from_hf, tiny

PROBE = "from draftproof import native; print(native.available()); print(native.reason())"


def probe(tmp_path, **changes):
    """(available, reason, stderr) of a fresh process with changed variables."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "DRAFTPROOF_CACHE": str(tmp_path), **changes}
    done = subprocess.run([sys.executable, "-c", PROBE], env=env, capture_output=True, text=True, check=True)
    available, reason = done.stdout.split("\n")[:2]
    return available == "True", reason, done.stderr


def test_turned_off(tmp_path):
    assert probe(tmp_path, DRAFTPROOF_NATIVE="0")[:2] == (False, "turned off by DRAFTPROOF_NATIVE=0")


def test_no_compiler(tmp_path):
    available, reason, _ = probe(tmp_path, CXX="/nowhere/g++")
    assert not available and "no C++ compiler found" in reason and "/nowhere/g++" in reason


def test_broken_compiler_gives_its_first_error(tmp_path):
    fake = tmp_path / "fake++"
    fake.write_text("#!/bin/sh\necho 'x.cpp:1: note'>&2; echo 'x.cpp:2: error: no luck'>&2; exit 1\n")
    fake.chmod(0o755)
    available, reason, _ = probe(tmp_path, CXX=str(fake))
    assert not available and reason.endswith("x.cpp:2: error: no luck")


def test_wrong_kernels_are_refused(tmp_path, monkeypatch):
    """A library that fails or crashes in its self-test never gets into the cache."""
    monkeypatch.setenv("DRAFTPROOF_CACHE", str(tmp_path))
    for body in ("return 7;", "__builtin_trap();"):
        source = tmp_path / "bad.cpp"
        source.write_text(f'extern "C" int dp_selftest() {{ {body} }}')
        compile_bad = ["-shared", "-fPIC", str(source), "-o"]

        def run(compiler, flags, output, command=compile_bad):
            subprocess.run([compiler, *command, str(output)], check=True)

        monkeypatch.setattr(build, "run_compiler", run)
        with pytest.raises(build.BuildError, match="self-test"):
            build.build_library()
        assert not list(tmp_path.rglob("*.so"))


def test_built_once_and_announced(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("DRAFTPROOF_CACHE", str(tmp_path))
    calls = []

    def run(compiler, flags, output):
        calls.append(output)
        source = tmp_path / "good.cpp"
        source.write_text('extern "C" int dp_selftest() { return 0; }')
        subprocess.run([compiler, "-shared", "-fPIC", str(source), "-o", str(output)], check=True)

    monkeypatch.setattr(build, "run_compiler", run)
    with caplog.at_level("INFO"):
        first = build.build_library()
        assert build.build_library() == first and first.is_file()
    assert len(calls) == 1 and len(caplog.messages) == 1 and "compiling" in caplog.messages[0]


def test_unwritable_cache_falls_back(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("DRAFTPROOF_CACHE", str(blocked))
    monkeypatch.setattr(build.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = build.writable_folder("key")
    assert folder.is_dir() and folder.parent.parent.parent == tmp_path


def test_threads_are_checked():
    with pytest.raises(ValueError, match="threads: expected at least 1, got 0"):
        native.set_threads(0)


def test_own_pool_gives_the_same_bits(monkeypatch):
    """Without an OpenMP runtime the kernels bring their own threads."""
    lib = native.runtime.library()
    linear, x = native.PackedLinear(torch.randn(200, 64).bfloat16()), torch.randn(30, 64)
    want = linear(x)
    lib.dp_runtime(None, None, None)
    try:
        for threads in (1, 4, 2, 3, 5):
            native.set_threads(threads)
            for _ in range(20):
                assert torch.equal(linear(x), want)
    finally:
        native.set_threads(2)
        entries = native.runtime._openmp_entry_points()
        if entries:
            lib.dp_runtime(*entries)


def test_rows_table_and_bandwidth():
    decoder = from_hf(tiny("Llama"), torch.float32)
    table = bench.rows_table(decoder, native.PackedLinear(torch.randn(101, 48)), rows=(1, 3), context=5, repeats=2)
    assert [t.rows for t in table] == [1, 3]
    assert all(0 < t.layers_ms < t.total_ms for t in table)
    assert bench.read_bandwidth(8, 1) > 0
