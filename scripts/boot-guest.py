#!/usr/bin/env python3
"""Boots a disk image in QEMU, answers on the serial console, and waits until the machine is off.

The steps are taken in order: `expect REGEX` waits for a text, `type TEXT` sends a line, `never REGEX`
is a text that may not come at any time. What the machine prints goes to --log. Exits with 1, and the end of that
on standard error, if something does not come in time or comes that may not.
"""

import argparse
import os
import re
import selectors
import subprocess
import sys
import tempfile
import time


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("kernel", "initrd", "disk", "append", "log"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--tpm", help="folder with the state of a software TPM; made if it is not there")
    parser.add_argument("--accel", default=os.environ.get("XTENT_BOOT_ACCEL", "tcg"), help="QEMU's accelerator")
    parser.add_argument("--patience", type=int, default=1200, help="seconds for the whole boot")
    parser.add_argument("steps", nargs="+", help="expect REGEX | type TEXT | never REGEX ...")
    args = parser.parse_args()
    if len(args.steps) % 2:
        parser.error("each step is a word and its text")
    return args


def start_tpm(state, socket):
    """A software TPM for this boot, as a TPM is reset by each."""
    os.makedirs(state, exist_ok=True)
    tpm = subprocess.Popen(
        ["swtpm", "socket", "--tpm2", "--tpmstate", f"dir={state}", "--ctrl", f"type=unixio,path={socket}", "--terminate"]
    )
    deadline = time.monotonic() + 60
    while not os.path.exists(socket):
        if tpm.poll() is not None or time.monotonic() > deadline:
            sys.exit("boot-guest: swtpm does not start")
        time.sleep(0.05)
    return tpm


class Console:
    """What the machine prints, and how to answer."""

    def __init__(self, machine, log, deadline, never):
        self.machine, self.log, self.deadline, self.never = machine, log, deadline, never
        self.text, self.seen = "", 0
        self.selector = selectors.DefaultSelector()
        self.selector.register(machine.stdout, selectors.EVENT_READ)

    def fail(self, why):
        self.machine.kill()
        sys.stderr.write(self.text[-6000:] + f"\nboot-guest: {why}\n")
        sys.exit(1)

    def more(self):
        """Reads on; false once the machine is off."""
        left = self.deadline - time.monotonic()
        if left <= 0 or not self.selector.select(left):
            self.fail("out of time")
        data = os.read(self.machine.stdout.fileno(), 65536)
        self.log.write(data)
        self.log.flush()
        self.text += data.decode(errors="replace").replace("\r", "")
        for regex in self.never:
            if re.search(regex, self.text):
                self.fail(f"this came: {regex}")
        return bool(data)

    def expect(self, regex):
        while not (found := re.compile(regex).search(self.text, self.seen)):
            if not self.more():
                self.fail(f"the machine is off, and this never came: {regex}")
        self.seen = found.end()

    def type(self, text):
        self.machine.stdin.write(text.encode() + b"\n")
        self.machine.stdin.flush()


def main():
    args = parse()
    steps = list(zip(args.steps[::2], args.steps[1::2]))
    with tempfile.TemporaryDirectory() as folder, open(args.log, "wb") as log:
        command = ["qemu-system-x86_64", "-machine", f"q35,accel={args.accel}", "-m", "1536", "-nodefaults"]
        command += ["-display", "none", "-serial", "stdio", "-no-reboot"]
        command += ["-cpu", "max" if args.accel == "tcg" else "host"]
        command += ["-kernel", args.kernel, "-initrd", args.initrd, "-append", args.append]
        command += ["-drive", f"file={args.disk},format=raw,if=virtio,cache=unsafe"]
        command += ["-device", "virtio-rng-pci"]
        tpm = None
        if args.tpm:
            socket = os.path.join(folder, "tpm")
            tpm = start_tpm(args.tpm, socket)
            command += ["-chardev", f"socket,id=tpm,path={socket}", "-tpmdev", "emulator,id=tpm0,chardev=tpm"]
            command += ["-device", "tpm-crb,tpmdev=tpm0"]
        machine = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            never = [text for word, text in steps if word == "never"]
            console = Console(machine, log, time.monotonic() + args.patience, never)
            for word, text in steps:
                if word != "never":
                    {"expect": console.expect, "type": console.type}[word](text)
            while console.more():
                pass
            if machine.wait() != 0:
                console.fail(f"QEMU ended with {machine.returncode}")
        finally:
            machine.kill()
            if tpm:
                tpm.terminate()
                tpm.wait()


main()
