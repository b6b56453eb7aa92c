/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A driver for the co-processor: one ring, one request at a time, an interrupt for each. */
#ifndef SOC_ENGINE_H
#define SOC_ENGINE_H

#include <linux/types.h>

#include "clock.h"

enum slot {
	SLOT_DATA,	/* ECB */
	SLOT_TWEAK,	/* ECB */
	SLOT_XTS,
};

/* What is not in the submission's fields is zero. */
struct request {
	u8 op, decrypt, slot, log2_unit;
	u32 units;
	const u32 *tweak;	/* four words, or none */
	const u8 *source;
	u8 *destination;	/* the source, or apart from it */
};

extern u32 engine_requests;
/* Cycles before each doorbell, at least: in place of an operating system. */
extern u32 engine_spin;

/* Keys of `bits` bits, of AES; ends the program if the engine is not as it has to be. */
void engine_init(unsigned int level, const u8 *key, unsigned int bits);
/* Waits for it. Its time goes to `row`, and the driver's to SOC_ROW_DRIVER. */
void engine_do(const struct request *request, enum soc_row row);

#endif
