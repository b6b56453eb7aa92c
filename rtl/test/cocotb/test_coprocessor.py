# SPDX-License-Identifier: MIT OR Apache-2.0
"""The co-processor with another author's idea of AXI4 and AXI4-Lite around it: runs of the
crate's test vectors by a small driver, with pauses on each channel, partial writes of
registers, and errors of the bus."""

import itertools
import random
import struct

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiRam

from engine import RTL, vectors

VECTORS = vectors("xts", 512)
# Where things lie in memory, which the co-processor sees above 4 GiB.
SQ, CQ, SOURCE, DESTINATION, LIST = 0, 0x10000, 0x20000, 0x40000, 0x60000
SIZE, HIGH = 0x80000, 1 << 32
LOG2_SIZE = 3


def constants():
    """The numbers of kernel/pci/registers.h by name."""
    words = (RTL.parent / "kernel/pci/registers.h").read_text().split("#define XTENT_ENGINE_")[1:]
    found = (word.split() for word in words)
    return {parts[0]: int(parts[1], 0) for parts in found if parts[1][0].isdigit()}


XE = constants()


def pauses(seed, busy):
    """A generator of pauses that moves in so many of a hundred cycles."""
    rng = random.Random(seed)
    return (rng.randrange(100) >= busy for _ in itertools.count())


class Refusing:
    """Makes memory refuse accesses that touch some addresses."""

    def __init__(self, ram):
        self.addresses = set()
        for side, name in ((ram.read_if, "_read"), (ram.write_if, "_write")):
            setattr(side, name, self.wrapped(getattr(side, name)))

    def wrapped(self, access):
        async def checked(address, what):
            length = what if isinstance(what, int) else len(what)
            if any(address <= bad < address + length for bad in self.addresses):
                raise OSError("refused")
            return await access(address, what)

        return checked


class Driver:
    def __init__(self, dut):
        self.dut = dut
        dut.aresetn.value = 0
        cocotb.start_soon(Clock(dut.aclk, 10, unit="ns").start())
        bus = AxiLiteBus.from_prefix(dut, "s_axil")
        self.registers = AxiLiteMaster(bus, dut.aclk, dut.aresetn, reset_active_level=False)
        bus = AxiBus.from_prefix(dut, "m_axi")
        self.ram = AxiRam(bus, dut.aclk, dut.aresetn, reset_active_level=False, size=SIZE)
        self.refusing = Refusing(self.ram)
        self.tail = self.head = 0

    async def write(self, name, value, offset=0):
        await self.registers.write_dword(XE[name] + offset, value)

    async def read(self, name, offset=0):
        return await self.registers.read_dword(XE[name] + offset)

    async def ring_write(self, name, value):
        await self.write("RINGS_OFFSET", value, XE["RING_" + name])

    async def start(self):
        await ClockCycles(self.dut.aclk, 3)
        self.dut.aresetn.value = 1
        while not await self.read("REG_STATUS") & 1:
            pass
        self.ram.write(CQ, bytes(16 << LOG2_SIZE))
        for name, address in (("SQ", SQ), ("CQ", CQ)):
            await self.ring_write(name + "_LO", address)
            await self.ring_write(name + "_HI", HIGH >> 32)
        await self.ring_write("SIZE", LOG2_SIZE)
        await self.ring_write("CONTROL", 1)
        await self.write("REG_INT_SET", 1)
        await self.write("REG_CTRL", 1)

    async def load(self, key):
        for at in range(0, len(key), 4):
            await self.write("REG_KEY_DATA", int.from_bytes(key[at : at + 4], "little"), at)
        await self.write("REG_KEY_CMD", XE["CIPHER_XTS"] << XE["KEY_CMD_CIPHER_LOW"] | 1 << XE["KEY_CMD_COMMAND_LOW"])
        while (status := await self.read("REG_KEY_STATUS")) & 1:
            pass
        assert status >> XE["KEY_STATUS_RESULT_LOW"] == XE["KEY_RESULT_DONE"]

    async def run(self, tweak, data, decrypt, pieces=None):
        """A run from SOURCE to DESTINATION, the former by a list if it is in pieces."""
        self.ram.write(SOURCE, data)
        self.ram.write(DESTINATION, bytes(len(data)))
        source, entries, flags = SOURCE, 0, decrypt << XE["FLAG_DECRYPT"]
        if pieces:
            source, entries, at = LIST, len(pieces), SOURCE
            for i, length in enumerate(pieces):
                self.ram.write(LIST + 16 * i, struct.pack("<QII", HIGH + at, length, 0))
                at += length
            flags |= 1 << XE["FLAG_SOURCE_LIST"]
        cookie = 0x1234567800000000 + self.tail
        sqe = struct.pack("<BBBBHHII", XE["OP_RUN"], flags, 0, 9, 1, 0, len(data) // 512, 0) + tweak
        sqe += struct.pack("<QQIIQ", HIGH + source, HIGH + DESTINATION, entries, 0, cookie)
        size = 1 << LOG2_SIZE
        self.ram.write(SQ + 64 * (self.tail % size), sqe)
        self.tail += 1
        await self.ring_write("TAIL", self.tail)
        while not int(self.dut.interrupt.value) & 1:
            await with_timeout(RisingEdge(self.dut.aclk), 1, "ms")
        await self.write("REG_INT_STATUS", 1)
        entry = self.ram.read(CQ + 16 * (self.head % size), 16)
        back, units, status, phase, sq_head = struct.unpack("<QIBBH", entry)
        assert back == cookie and phase == (self.head >> LOG2_SIZE & 1 ^ 1) and sq_head == self.head + 1
        self.head += 1
        await self.ring_write("CQ_HEAD", self.head)
        return status, units, bytes(self.ram.read(DESTINATION, len(data)))


@cocotb.test()
@cocotb.parametrize(busy=[100, 60, 25])
async def runs(dut, busy):
    """Vectors in both directions, while each channel of memory goes at its own pace."""
    rng = random.Random(busy)
    driver = Driver(dut)
    read, write = driver.ram.read_if, driver.ram.write_if
    channels = (read.ar_channel, read.r_channel, write.aw_channel, write.w_channel, write.b_channel)
    if busy < 100:
        for seed, channel in enumerate(channels):
            channel.set_pause_generator(pauses(seed, busy))
    await driver.start()
    for key, tweak, plain, cipher in VECTORS:
        await driver.load(key)
        units = len(plain) // 512
        assert await driver.run(tweak, plain, False) == (0, units, cipher)
        cut = 16 * rng.randrange(1, len(plain) // 16)
        assert await driver.run(tweak, cipher, True, [cut, len(plain) - cut]) == (0, units, plain)


@cocotb.test()
async def errors(dut):
    """The bus refuses data: the request says how far it came, and left nothing else."""
    driver = Driver(dut)
    await driver.start()
    key, tweak, plain, cipher = VECTORS[0]
    await driver.load(key)
    units = len(plain) // 512
    assert units > 1
    for unit in range(units):
        driver.refusing.addresses = {HIGH + SOURCE + 512 * unit + 16}
        status, done, data = await driver.run(tweak, plain, False)
        assert status == XE["STATUS_READ"] and done <= unit
        assert data == cipher[: 512 * done] + bytes(len(plain) - 512 * done)
    driver.refusing.addresses = set()
    assert await driver.run(tweak, plain, False) == (0, units, cipher)
    # A write that cannot be done cannot be erased: the ring stops.
    driver.refusing.addresses = {HIGH + DESTINATION + 512}
    status, done, _ = await driver.run(tweak, plain, False)
    assert status == XE["STATUS_WRITE"] and done <= 1
    assert await driver.read("REG_FAULT") == XE["FAULT_ERASE"]


@cocotb.test()
async def parts(dut):
    """A write with less than four bytes changes nothing."""
    driver = Driver(dut)
    await driver.start()
    at = XE["RINGS_OFFSET"] + XE["RINGS_STRIDE"] + XE["RING_CQ_LO"]
    await driver.registers.write_dword(at, 0x12345678)
    for length in (1, 2, 3):
        await driver.registers.write(at + 1, bytes(length))
        assert await driver.registers.read_dword(at) == 0x12345678
