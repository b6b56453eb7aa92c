/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the program and the test bench agree on: where things are in memory, what is to be done, and
 * the registers by which the program tells what came of it.
 */
#ifndef SOC_H
#define SOC_H

#include <stdint.h>

#define SOC_MEMORY_BYTES 0x400000
/* Memory past the data cache. */
#define SOC_UNCACHED 0x80000000
#define SOC_ENGINE 0xe0000000
#define SOC_BENCH 0xf0000000

/* After the program and its stack. */
#define SOC_JOB 0x10000
#define SOC_SUBMISSIONS 0x11000
#define SOC_COMPLETIONS 0x12000
#define SOC_SOURCE 0x100000
#define SOC_DESTINATION 0x200000
#define SOC_MAX_BYTES 0x100000

#define SOC_SECTOR_BYTES 512
/* The most data in a request. */
#define SOC_MAX_REQUEST 0x10000

enum soc_mode {
	SOC_SOFTWARE,	/* everything on the CPU */
	SOC_MIXED,	/* blocks in the engine, also for the tweaks; the rest on the CPU */
	SOC_UNITS,	/* units of XTS in the engine, whose tweaks its ECB encrypts */
	SOC_UNITS_CPU,	/* the same, whose tweaks the CPU encrypts */
	SOC_RUNS,	/* runs in the engine */
};

/* At SOC_JOB. */
struct soc_job {
	uint32_t mode;
	uint32_t decrypt;	/* in place; encryption goes from the source to the destination */
	uint32_t bytes;
	uint32_t request;	/* bytes */
	uint32_t key_bits;	/* of AES: 128 or 256 */
	uint32_t first_sector;
	uint32_t spin;		/* cycles that each request to the engine takes in the driver at least */
	uint8_t key[64];	/* for data, then for tweaks */
};

/* Where a cycle goes; XT_ROW_... in the kernel, but for SOC_ROW_DRIVER. */
enum soc_row {
	SOC_ROW_OTHER,
	SOC_ROW_TWEAK,		/* IVs and masks */
	SOC_ROW_IV_ENGINE,	/* IVs in the cipher: from the doorbell to the interrupt */
	SOC_ROW_XOR1,
	SOC_ROW_XOR2,
	SOC_ROW_ENGINE,		/* data in the cipher, the same */
	SOC_ROW_DRIVER,		/* submissions, the interrupt's handler, the cache */
	SOC_ROWS,
};

/* The test bench's registers, by index. */
enum soc_register {
	SOC_REG_EXIT,		/* ends the simulation: 0, or what went wrong */
	SOC_REG_START,		/* the measured time begins or ends */
	SOC_REG_STOP,
	SOC_REG_REQUESTS,	/* that the engine did */
	SOC_REG_INSTRUCTIONS,	/* that the CPU did */
	SOC_REG_TOTAL,		/* cycles by the CPU's counter */
	SOC_REG_ROWS,		/* and SOC_ROWS - 1 after it */
	SOC_REGISTERS = SOC_REG_ROWS + SOC_ROWS,
};

#endif
