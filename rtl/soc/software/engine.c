// SPDX-License-Identifier: MIT OR Apache-2.0
#include "engine.h"

#include "../../../kernel/pci/registers.h"

#define XE(name) XTENT_ENGINE_##name
#define LOG2_RING 3

void finish(u32 code) __attribute__((noreturn));

u32 engine_requests, engine_spin;

static volatile u32 *const registers = (volatile u32 *)SOC_ENGINE;
/* What both sides write is past the cache, as a kernel has it for devices that do not see caches. */
static volatile u32 *const submissions = (volatile u32 *)(SOC_UNCACHED + SOC_SUBMISSIONS);
static volatile u32 *const completions = (volatile u32 *)(SOC_UNCACHED + SOC_COMPLETIONS);
static u32 tail, head;
static volatile u32 done;

static void write_register(u32 offset, u32 value)
{
	registers[offset / 4] = value;
}

static u32 read_register(u32 offset)
{
	return registers[offset / 4];
}

static void write_ring(u32 offset, u32 value)
{
	write_register(XE(RINGS_OFFSET) + offset, value);
}

/* Nothing may happen that was not foreseen: the place says what it was. */
static void insist(int condition, u32 place)
{
	if (!condition)
		finish(place << 1);
}

static void load_key(enum slot slot, unsigned int cipher, const u8 *key, unsigned int bytes, unsigned int bits)
{
	u32 status;
	unsigned int i;

	for (i = 0; i < bytes; i += 4)
		write_register(XE(REG_KEY_DATA) + i, *(const u32 *)(key + i));
	write_register(XE(REG_KEY_CMD), slot << XE(KEY_CMD_SLOT_LOW) | cipher << XE(KEY_CMD_CIPHER_LOW) |
					(bits == 256) << XE(KEY_CMD_KEY_BITS_LOW) |
					1 << XE(KEY_CMD_COMMAND_LOW));
	do
		status = read_register(XE(REG_KEY_STATUS));
	while (status >> XE(KEY_STATUS_BUSY_LOW) & 1);
	insist(status >> XE(KEY_STATUS_RESULT_LOW) == XE(KEY_RESULT_DONE), 1);
}

void engine_init(unsigned int level, const u8 *key, unsigned int bits)
{
	unsigned int i;

	insist(read_register(XE(REG_ID)) == XE(ID), 2);
	insist(read_register(XE(REG_VERSION)) >> XE(VERSION_MAJOR_LOW) == XE(MAJOR), 3);
	insist((read_register(XE(REG_CAP0)) >> XE(CAP0_LEVEL_LOW) & 15) >= level, 4);
	while (!(read_register(XE(REG_STATUS)) >> XE(STATUS_READY_LOW) & 1))
		;
	load_key(SLOT_DATA, XE(CIPHER_ECB), key, bits / 8, bits);
	load_key(SLOT_TWEAK, XE(CIPHER_ECB), key + bits / 8, bits / 8, bits);
	if (level == 3)
		load_key(SLOT_XTS, XE(CIPHER_XTS), key, bits / 4, bits);

	for (i = 0; i < XE(CQE_BYTES) << LOG2_RING; i += 4)
		completions[i / 4] = 0;
	write_ring(XE(RING_SQ_LO), SOC_SUBMISSIONS);
	write_ring(XE(RING_SQ_HI), 0);
	write_ring(XE(RING_CQ_LO), SOC_COMPLETIONS);
	write_ring(XE(RING_CQ_HI), 0);
	write_ring(XE(RING_SIZE), LOG2_RING);
	write_ring(XE(RING_CONTROL), 1 << XE(RING_CONTROL_ENABLE_LOW));
	write_register(XE(REG_INT_SET), 1 << XE(INT_SET_RINGS_LOW) | 1u << XE(INT_SET_FAULT_LOW));
	write_register(XE(REG_CTRL), 1 << XE(CTRL_ENABLE_LOW));
}

/* Called by `trap`, with the cycle in which it was. */
void on_interrupt(u32 now)
{
	volatile u32 *completion = completions + (head & ((1 << LOG2_RING) - 1)) * (XE(CQE_BYTES) / 4);
	u32 status, word;

	clock_enter_at(SOC_ROW_DRIVER, now);
	status = read_register(XE(REG_INT_STATUS));
	write_register(XE(REG_INT_STATUS), status);
	insist(status == 1 << XE(INT_STATUS_RINGS_LOW), 5);
	/* Status, phase, and how many submissions are done. */
	word = completion[XE(CQE_STATUS) / 4];
	insist((word & 0xff) == XE(STATUS_DONE), 6);
	insist((word >> 8 & 0xff) == !(head >> LOG2_RING & 1), 7);
	insist(completion[XE(CQE_COOKIE) / 4] == head, 8);
	head++;
	write_ring(XE(RING_CQ_HEAD), head & 0xffff);
	done = 1;
}

/* All of the data cache, as this CPU has it: nothing in it is newer than memory. */
static void invalidate_cache(void)
{
	asm volatile(".word 0x500f" : : : "memory");
}

void engine_do(const struct request *request, enum soc_row row)
{
	volatile u32 *sqe = submissions + (tail & ((1 << LOG2_RING) - 1)) * (XE(SQE_BYTES) / 4);
	const int in_place = request->source == request->destination;
	const u32 begin = cycle();
	unsigned int i;

	clock_enter(SOC_ROW_DRIVER);
	sqe[0] = request->op | (request->decrypt << XE(FLAG_DECRYPT) | in_place << XE(FLAG_IN_PLACE)) << 8 |
		 request->slot << 16 | (u32)request->log2_unit << 24;
	sqe[XE(SQE_STEP) / 4] = request->op == XE(OP_RUN);
	sqe[XE(SQE_UNITS) / 4] = request->units;
	sqe[XE(SQE_ZERO1) / 4] = 0;
	for (i = 0; i < 4; i++)
		sqe[XE(SQE_TWEAK) / 4 + i] = request->tweak ? request->tweak[i] : 0;
	sqe[XE(SQE_SOURCE) / 4] = (u32)request->source;
	sqe[XE(SQE_SOURCE) / 4 + 1] = 0;
	sqe[XE(SQE_DESTINATION) / 4] = in_place ? 0 : (u32)request->destination;
	sqe[XE(SQE_DESTINATION) / 4 + 1] = 0;
	sqe[XE(SQE_SOURCE_ENTRIES) / 4] = 0;
	sqe[XE(SQE_DESTINATION_ENTRIES) / 4] = 0;
	sqe[XE(SQE_COOKIE) / 4] = tail;
	sqe[XE(SQE_COOKIE) / 4 + 1] = 0;
	tail++;
	engine_requests++;
	done = 0;
	while (engine_spin && cycle() - begin < engine_spin)
		;
	/* The computer holds it back until memory has all that was stored before. */
	write_ring(XE(RING_TAIL), tail & 0xffff);
	clock_enter(row);
	/*
	 * Between the look and wfi nothing is missed: that wakes for interrupts that are not taken, too. The
	 * CPU takes one some instructions after it may.
	 */
	while (!done)
		asm volatile("wfi\n\tcsrsi mstatus, 8\n\tnop\n\tnop\n\tnop\n\tnop\n\tcsrci mstatus, 8"
			     : : : "memory");
	invalidate_cache();
	clock_enter(SOC_ROW_OTHER);
}
