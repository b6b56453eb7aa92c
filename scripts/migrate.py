#!/usr/bin/env python3
"""Moves a running guest from one QEMU to another one on the same machine, by QMP.

usage: migrate.py SOURCE DESTINATION SOCKET

SOURCE and DESTINATION are the QMP sockets of both; SOCKET is made for what goes from one to the
other. Ends when the guest runs at the destination.
"""

import json
import socket
import sys
import time


def connected(path):
    """A connection to the QEMU at `path`, which may just have been started: it has no socket yet
    then, or one that it has bound and does not listen at."""
    until = time.monotonic() + 60
    while True:
        end = socket.socket(socket.AF_UNIX)
        try:
            end.connect(path)
            return end
        except (FileNotFoundError, ConnectionRefusedError):
            end.close()
            if time.monotonic() > until:
                raise RuntimeError(f"{path}: QEMU has not started") from None
        time.sleep(0.02)


class Machine:
    """A QEMU that is asked by QMP, and what it has said of itself."""

    def __init__(self, path):
        self.socket = connected(path)
        self.socket.settimeout(120)
        self.lines = self.socket.makefile()
        self.events = []
        self.read()
        self.ask("qmp_capabilities")

    def read(self):
        line = self.lines.readline()
        if not line:
            raise RuntimeError("QEMU has ended")
        return json.loads(line)

    def ask(self, command, **arguments):
        self.socket.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        while True:
            said = self.read()
            if "error" in said:
                raise RuntimeError(f"{command}: {said['error']['desc']}")
            if "return" in said:
                return said["return"]
            self.events.append(said)

    def happens(self):
        """What it says of itself, as it comes: names, and what else."""
        while True:
            said = self.events.pop(0) if self.events else self.read()
            if said.get("data", {}).get("status") == "failed":
                raise RuntimeError("the migration has failed")
            yield said["event"], said.get("data", {})


def main():
    source, destination, between = sys.argv[1:]
    source, destination = Machine(source), Machine(destination)
    for machine in source, destination:
        events = {"capability": "events", "state": True}
        machine.ask("migrate-set-capabilities", capabilities=[events])
    # Some seconds, in which the guest works; and an end, whatever it writes.
    source.ask("migrate-set-parameters", **{"max-bandwidth": 32 << 20})
    destination.ask("migrate-incoming", uri=f"unix:{between}")
    source.ask("migrate", uri=f"unix:{between}")
    for event, data in source.happens():
        if event == "MIGRATION_PASS" and data["pass"] == 4:
            source.ask("migrate-set-parameters", **{"max-bandwidth": 1 << 30, "downtime-limit": 2000})
        if event == "MIGRATION" and data["status"] == "completed":
            break
    for event, _ in destination.happens():
        if event == "RESUME":
            break
    found = source.ask("query-migrate")
    moved, looked = found["ram"]["transferred"] >> 20, found["ram"]["dirty-sync-count"]
    print(f"moved: {moved} MiB in {found['total-time']} ms, looked for written pages {looked} times")


try:
    main()
except (RuntimeError, OSError) as error:
    sys.exit(f"migrate: {error}")
