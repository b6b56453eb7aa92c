#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Writes test vectors as lines that the C++ tests read:

    model key tweak sector-bytes plaintext ciphertext

in hexadecimal except for the sector size; a longer plaintext is a run whose
tweaks count up by one. The project's own vectors are those of the crate
sector-cipher, in this clone, and two of AEZ10 without a tweak (Delta = 0) from the
same independent reference. Vectors that others have published are taken from
the file that XTENT_PUBLISHED_VECTORS names, if it does.
"""

import json
import os
import pathlib
import sys

DATA = pathlib.Path(__file__).resolve().parents[2] / "crates/sector-cipher/tests/data"
MODELS = {
    "aes-xts-plain64": ("xts", 16),
    "capi:fast(aes)-plain64": ("fast-brw", 16),
    "capi:fast_horner(aes)-plain64": ("fast-horner", 16),
    "capi:xcb(aes)-plain64": ("xcb", 16),
    "capi:eme2(aes)-plain64": ("eme2", 16),
    "capi:aez10(aes)-plain64": ("aez10", 16),
    "aes-hctr2-plain64": ("hctr2", 32),
}
PUBLISHED = {
    "XTS": "xts",
    "FAST-brw": "fast-brw",
    "FAST-horner": "fast-horner",
    "XCB": "xcb",
    "EME2": "eme2",
    "HCTR2": "hctr2",
}


def reference():
    """The vectors in this clone."""
    for name in ("xts", "fast", "xcb", "eme2", "aez10", "hctr2"):
        for v in json.loads((DATA / f"{name}-reference.json").read_text()):
            model, tweak_bytes = MODELS[v["cipher"]]
            tweak = v["sector"].to_bytes(tweak_bytes, "little").hex()
            yield model, v["key"], tweak, v["sector_size"], v["pt"], v["ct"]
    for v in json.loads((DATA / "xcb-counter-wraps.json").read_text()):
        yield "xcb", v["key"], v["tweak"], len(v["pt"]) // 2, v["pt"], v["ct"]
    no_tweak = pathlib.Path(__file__).with_name("data") / "aez10-no-tweak.json"
    for v in json.loads(no_tweak.read_text()):
        yield "aez10-no-tweak", v["key"], "00" * 16, len(v["pt"]) // 2, v["pt"], v["ct"]


def published(path):
    """Those of a file of published vectors that the models cover."""
    for v in json.loads(pathlib.Path(path).read_text())["vectors"]:
        model = PUBLISHED.get(v["cipher"])
        size, tweak = len(v.get("pt", "")) // 2, len(v.get("tweak", "")) // 2
        blocks = size // 16
        if model is None or size == 0 or size % 16 or len(v["key"]) // 2 % 16:
            continue
        if tweak % 16 or (tweak == 0 and model != "eme2") or (tweak > 16 and model == "xcb"):
            continue
        if model == "fast-brw" and blocks % 4:
            continue
        yield model, v["key"], v["tweak"], size, v["pt"], v["ct"]


def main():
    path = os.environ.get("XTENT_PUBLISHED_VECTORS")
    vectors = list(reference()) + (list(published(path)) if path else [])
    for model, key, tweak, size, plain, cipher in vectors:
        # An empty field would be none.
        print(model, key, tweak or "-", size, plain, cipher)
    extra = f" and {path}" if path else ""
    print(f"{len(vectors)} vectors, of this clone{extra}", file=sys.stderr)


if __name__ == "__main__":
    main()
