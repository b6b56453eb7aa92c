// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * XTS of 512-byte sectors in the ways of Demir et al., request after request, with the cycles of each
 * step. The steps of SOC_MIXED are those of kernel/engine.c.
 */
#include "../../../kernel/xts_masks.h"
#include "../../../kernel/pci/registers.h"
#include "aes.h"
#include "engine.h"

#define BLOCK_BYTES 16
#define BLOCKS (SOC_SECTOR_BYTES / BLOCK_BYTES)
/* As in the kernel. */
#define MASK_BYTES 4096

struct clock clock;

/* A cache line of their own: the engine writes to the first. */
static __le64 tweaks[SOC_MAX_REQUEST / SOC_SECTOR_BYTES * 2] __attribute__((aligned(32)));
static __le64 masks[MASK_BYTES / 8] __attribute__((aligned(32)));

static void report(enum soc_register index, u32 value)
{
	((volatile u32 *)SOC_BENCH)[index] = value;
}

/* By words, as the kernel's crypto_xor_cpy() on a CPU of 32 bits. */
static void xor_words(u8 *to, const u8 *from, const u8 *mask, unsigned int bytes)
{
	for (; bytes >= 4; bytes -= 4, to += 4, from += 4, mask += 4)
		*(u32 *)to = *(const u32 *)from ^ *(const u32 *)mask;
}

static void xor_run(u8 *to, const u8 *from, unsigned int bytes, enum soc_row row)
{
	const __le64 *tweak = tweaks;

	while (bytes) {
		unsigned int made = bytes < MASK_BYTES ? bytes : MASK_BYTES;

		clock_enter(SOC_ROW_TWEAK);
		xt_make_masks(masks, tweak, made, BLOCKS);
		tweak += made / SOC_SECTOR_BYTES * 2;
		clock_enter(row);
		xor_words(to, from, (const u8 *)masks, made);
		to += made;
		from += made;
		bytes -= made;
	}
	clock_enter(SOC_ROW_OTHER);
}

static void make_ivs(u32 sector, unsigned int sectors)
{
	unsigned int i;

	clock_enter(SOC_ROW_TWEAK);
	for (i = 0; i < sectors; i++) {
		tweaks[2 * i] = cpu_to_le64(sector + i);
		tweaks[2 * i + 1] = 0;
	}
	clock_enter(SOC_ROW_OTHER);
}

/* Blocks in place: by the CPU, or by the engine. */
static void crypt_blocks(int software, enum slot slot, int decrypt, u8 *data, unsigned int bytes, enum soc_row row)
{
	const int key = slot == SLOT_DATA ? AES_DATA : AES_TWEAK;
	u8 *end = data + bytes;

	if (!software) {
		const struct request request = {
			.op = XTENT_ENGINE_OP_ECB, .decrypt = decrypt, .slot = slot, .log2_unit = 4,
			.units = bytes / BLOCK_BYTES, .source = data, .destination = data,
		};

		engine_do(&request, row);
		return;
	}
	clock_enter(row);
	for (; data != end; data += BLOCK_BYTES) {
		if (decrypt)
			aes_decrypt(key, data);
		else
			aes_encrypt(key, data);
	}
	clock_enter(SOC_ROW_OTHER);
}

static void crypt_units(int software, int decrypt, u8 *to, const u8 *from, unsigned int sectors)
{
	unsigned int i;

	crypt_blocks(software, SLOT_TWEAK, 0, (u8 *)tweaks, sectors * BLOCK_BYTES, SOC_ROW_IV_ENGINE);
	for (i = 0; i < sectors; i++) {
		const struct request request = {
			.op = XTENT_ENGINE_OP_XTS, .decrypt = decrypt, .slot = SLOT_DATA, .log2_unit = 9,
			.units = 1, .tweak = (const u32 *)(tweaks + 2 * i),
			.source = from + i * SOC_SECTOR_BYTES, .destination = to + i * SOC_SECTOR_BYTES,
		};

		engine_do(&request, SOC_ROW_ENGINE);
	}
}

static void crypt_run(int decrypt, u8 *to, const u8 *from, unsigned int sectors)
{
	const struct request request = {
		.op = XTENT_ENGINE_OP_RUN, .decrypt = decrypt, .slot = SLOT_XTS, .log2_unit = 9,
		.units = sectors, .tweak = (const u32 *)tweaks, .source = from, .destination = to,
	};

	engine_do(&request, SOC_ROW_ENGINE);
}

static void crypt_request(const struct soc_job *job, u8 *to, const u8 *from, u32 sector, unsigned int bytes)
{
	const unsigned int sectors = bytes / SOC_SECTOR_BYTES;
	const int software = job->mode == SOC_SOFTWARE;

	/* Of a run the engine counts the others. */
	make_ivs(sector, job->mode == SOC_RUNS ? 1 : sectors);
	switch (job->mode) {
	case SOC_RUNS:
		crypt_run(job->decrypt, to, from, sectors);
		break;
	case SOC_UNITS:
	case SOC_UNITS_CPU:
		crypt_units(job->mode == SOC_UNITS_CPU, job->decrypt, to, from, sectors);
		break;
	default:
		crypt_blocks(software, SLOT_TWEAK, 0, (u8 *)tweaks, sectors * BLOCK_BYTES, SOC_ROW_IV_ENGINE);
		xor_run(to, from, bytes, SOC_ROW_XOR1);
		crypt_blocks(software, SLOT_DATA, job->decrypt, to, bytes, SOC_ROW_ENGINE);
		xor_run(to, to, bytes, SOC_ROW_XOR2);
	}
}

int main(void)
{
	const struct soc_job *job = (const struct soc_job *)SOC_JOB;
	u8 *to = (u8 *)SOC_DESTINATION;
	const u8 *from = job->decrypt ? to : (const u8 *)SOC_SOURCE;
	u32 start, end, instructions, done, bytes;
	unsigned int row;

	if (job->mode == SOC_SOFTWARE || job->mode == SOC_UNITS_CPU) {
		aes_init();
		aes_set_key(AES_DATA, job->key, job->key_bits);
		aes_set_key(AES_TWEAK, job->key + job->key_bits / 8, job->key_bits);
	}
	if (job->mode != SOC_SOFTWARE)
		engine_init(job->mode == SOC_RUNS ? 3 : job->mode == SOC_MIXED ? 1 : 2, job->key, job->key_bits);

	engine_spin = job->spin;
	report(SOC_REG_START, 0);
	instructions = retired();
	start = cycle();
	clock.row = SOC_ROW_OTHER;
	clock.since = start;
	for (done = 0; done < job->bytes; done += bytes) {
		bytes = job->bytes - done < job->request ? job->bytes - done : job->request;
		crypt_request(job, to + done, from + done, job->first_sector + done / SOC_SECTOR_BYTES, bytes);
	}
	end = cycle();
	instructions = retired() - instructions;
	clock_enter_at(SOC_ROW_OTHER, end);
	report(SOC_REG_STOP, 0);

	report(SOC_REG_REQUESTS, engine_requests);
	report(SOC_REG_INSTRUCTIONS, instructions);
	report(SOC_REG_TOTAL, end - start);
	for (row = 0; row < SOC_ROWS; row++)
		report(SOC_REG_ROWS + row, clock.cycles[row]);
	return 0;
}
