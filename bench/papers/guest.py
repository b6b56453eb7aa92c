# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the experiments in guests share: modules, the simulated co-processor, commands that have to succeed."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(*command, **more):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, **more)
    if done.returncode != 0:
        raise SystemExit(f"papers: failed: {' '.join(map(str, command))}\n{done.stdout[-6000:]}{done.stderr[-6000:]}")
    return done.stdout


def build_modules(bed, **options):
    """The folder with the kernel's modules, built with such options."""
    return Path(run(ROOT / "kernel/test/build.sh", bed, env={**os.environ, **options}).strip())


def start_device(args, design, work, *more):
    """The simulated co-processor, for a guest, at `work`/engine."""
    for missing in (args.sim, args.models / f"{design}.so"):
        if not missing.exists():
            raise SystemExit(f"papers: {missing} is missing; `make bench-papers` builds everything")
    command = [args.sim, "--models", args.models, "--design", design, "--vhost-user", work / "engine", "--once", *more]
    engine = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, text=True)
    # By then it is there. If it ends, its own words say why.
    if not engine.stdout.readline().startswith("listening on "):
        engine.wait()
        raise SystemExit(f"papers: {' '.join(map(str, command))} ended")
    return engine
