# SPDX-License-Identifier: MIT OR Apache-2.0
"""sector_engine as a program on the other side of its AXI4-Streams sees it: runs of
the crate's test vectors, with sources and sinks that pause at random, key changes, and
zeroize in the middle of a run."""

import itertools
import os
import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, ReadOnly, RisingEdge, with_timeout
from cocotbext.axi import AxiStreamBus, AxiStreamFrame, AxiStreamSink, AxiStreamSource

from engine import MODEL, vectors

CIPHER = os.environ["ENGINE_CIPHER"]
SECTOR_BYTES = int(os.environ["ENGINE_SECTOR_BYTES"])
VECTORS = vectors(MODEL[CIPHER], SECTOR_BYTES)


def pauses(seed, busy):
    """A generator of pauses that moves in so many of a hundred cycles."""
    rng = random.Random(seed)
    return (rng.randrange(100) >= busy for _ in itertools.count())


class Engine:
    """Drives a sector_engine."""

    def __init__(self, dut):
        self.dut = dut
        self.dut.zeroize.value = 0
        self.dut.aresetn.value = 0
        cocotb.start_soon(Clock(dut.aclk, 10, unit="ns").start())

        def end(kind, name):
            bus = AxiStreamBus.from_prefix(dut, name)
            return kind(bus, dut.aclk, dut.aresetn, reset_active_level=False)

        self.key = end(AxiStreamSource, "s_axis_key")
        self.request = end(AxiStreamSource, "s_axis_request")
        self.data = end(AxiStreamSource, "s_axis_data")
        self.out = end(AxiStreamSink, "m_axis_data")
        cocotb.start_soon(self.stands())

    async def reset(self):
        self.dut.aresetn.value = 0
        await ClockCycles(self.dut.aclk, 3)
        self.dut.aresetn.value = 1
        await ClockCycles(self.dut.aclk, 1)

    async def restart(self):
        """Sources and sink begin again; the engine sees no reset."""
        ends = (self.key, self.request, self.data, self.out)
        for end in ends:
            end.assert_reset(True)
            end.clear()
        await ClockCycles(self.dut.aclk, 1)
        for end in ends:
            end.assert_reset(False)

    async def stands(self):
        """The rule of the stream that the engine drives."""
        dut, held = self.dut, None
        while True:
            await RisingEdge(dut.aclk)
            await ReadOnly()
            quiet = not dut.aresetn.value or dut.zeroize.value
            now = (dut.m_axis_data_tdata.value, dut.m_axis_data_tlast.value)
            valid = bool(dut.m_axis_data_tvalid.value)
            if held is not None and not quiet:
                assert valid and now == held, "output that was not taken has changed"
            held = now if valid and not quiet and not dut.m_axis_data_tready.value else None

    async def load(self, key):
        await self.key.send(AxiStreamFrame(key))
        await self.key.wait()

    async def start(self, tweak, sectors, decrypt, data):
        beat = tweak + sectors.to_bytes(4, "little") + bytes([decrypt])
        await self.request.send(AxiStreamFrame(beat))
        await self.data.send(AxiStreamFrame(data))

    async def take(self):
        frame = await with_timeout(self.out.recv(), 2, "ms")
        return bytes(frame.tdata)


async def runs(engine, some):
    for key, tweak, plain, cipher in some:
        await engine.load(key)
        sectors = len(plain) // SECTOR_BYTES
        # Both are under way at the same time, in opposite directions.
        await engine.start(tweak, sectors, False, plain)
        await engine.start(tweak, sectors, True, cipher)
        assert await engine.take() == cipher, "encryption"
        assert await engine.take() == plain, "decryption"
    assert engine.out.empty()


@cocotb.test()
async def full_rate(dut):
    """Streams that never pause."""
    engine = Engine(dut)
    await engine.reset()
    await runs(engine, VECTORS)


@cocotb.test()
@cocotb.parametrize(busy=[(90, 90), (20, 90), (90, 20), (40, 40)])
async def with_pauses(dut, busy):
    """Sources and sink go at their own pace."""
    engine = Engine(dut)
    await engine.reset()
    engine.request.set_pause_generator(pauses(1, busy[0]))
    engine.data.set_pause_generator(pauses(2, busy[0]))
    engine.out.set_pause_generator(pauses(3, busy[1]))
    await runs(engine, VECTORS[:3])


@cocotb.test()
async def zeroize(dut):
    """In the middle of a run; what follows starts from nothing."""
    rng = random.Random(4)
    engine = Engine(dut)
    await engine.reset()
    key, tweak, plain, cipher = VECTORS[0]
    for _ in range(4):
        await engine.load(key)
        await engine.start(tweak, 1, False, plain[:SECTOR_BYTES])
        await ClockCycles(dut.aclk, rng.randrange(1, 200))
        dut.zeroize.value = 1
        await RisingEdge(dut.aclk)
        dut.zeroize.value = 0
        await ReadOnly()
        assert not dut.m_axis_data_tvalid.value and not dut.expanded.value
        await RisingEdge(dut.aclk)
        await engine.restart()
        # Not a request is taken before a key.
        await engine.start(tweak, 1, False, plain[:SECTOR_BYTES])
        await ClockCycles(dut.aclk, 1000)
        assert not engine.request.idle(), "a request is taken without a key"
        assert engine.out.empty()
        await engine.load(key)
        assert await engine.take() == cipher[:SECTOR_BYTES]
