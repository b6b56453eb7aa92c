// SPDX-License-Identifier: GPL-2.0
/*
 * The test of a device before its use: each operation, key length and unit size that it
 * offers, both ways, from one memory to another and in place, against the kernel's AES.
 */
#include <linux/completion.h>
#include <linux/math64.h>
#include <linux/slab.h>
#include <crypto/algapi.h>

#include "../compat.h"
#include "device.h"

/* Units of a run: tweaks are counted, and with a carry out of 64 bits. */
#define UNITS 3
#define MAX_UNIT 4096

struct test {
	struct xtp_device *xtp;
	struct xtp_job job;
	struct xtp_key key;
	struct completion ended;
	enum xtp_outcome outcome;
	struct scatterlist src, dst;
	struct xt_aes_key data_key, tweak_key;
	u8 bytes[XTP_MAX_KEY];
	u8 first_tweak[AES_BLOCK_SIZE];
	u8 *plain, *cipher, *got;
};

static void fill(u8 *to, unsigned int bytes, u32 seed)
{
	unsigned int i;

	for (i = 0; i < bytes; i++)
		to[i] = ((i + seed) * 0x9e3779b1) >> 24;
}

static void xor_block(u8 *to, const u8 *from)
{
	crypto_xor(to, from, AES_BLOCK_SIZE);
}

/* Times x, in the field of XTS. */
static void double_tweak(u8 *tweak)
{
	unsigned int i, carry = 0;

	for (i = 0; i < AES_BLOCK_SIZE; i++) {
		unsigned int twice = tweak[i] << 1 | carry;

		tweak[i] = twice;
		carry = twice >> 8;
	}
	tweak[0] ^= carry * 0x87;
}

static void next_unit(u8 *tweak)
{
	unsigned int i = 0;

	while (i < AES_BLOCK_SIZE && !++tweak[i])
		i++;
}

/* What the device is to make of `plain`. */
static void expect(struct test *t, unsigned int unit, unsigned int bytes, bool xts)
{
	u8 number[AES_BLOCK_SIZE], tweak[AES_BLOCK_SIZE];
	unsigned int at;

	memcpy(number, t->first_tweak, sizeof(number));
	memcpy(t->cipher, t->plain, bytes);
	for (at = 0; at < bytes; at += AES_BLOCK_SIZE) {
		u8 *block = t->cipher + at;

		if (xts && at % unit == 0) {
			aes_encrypt(&t->tweak_key, tweak, number);
			next_unit(number);
		}
		if (xts)
			xor_block(block, tweak);
		aes_encrypt(&t->data_key, block, block);
		if (xts) {
			xor_block(block, tweak);
			double_tweak(tweak);
		}
	}
}

static void ended(struct xtp_job *job, enum xtp_outcome outcome)
{
	struct test *t = container_of(job, struct test, job);

	t->outcome = outcome;
	complete(&t->ended);
}

static bool crypt(struct test *t, bool decrypt, u8 *from, u8 *to, unsigned int bytes)
{
	struct xtp_job *job = &t->job;
	int r;

	sg_init_one(&t->src, from, bytes);
	sg_init_one(&t->dst, to, bytes);
	job->src = &t->src;
	job->dst = from == to ? &t->src : &t->dst;
	job->src_pieces = 1;
	job->dst_pieces = 1;
	job->bytes = bytes;
	job->decrypt = decrypt;
	if (job->op == XTENT_ENGINE_OP_XTS)
		aes_encrypt(&t->tweak_key, job->tweak, t->first_tweak);
	else
		memcpy(job->tweak, t->first_tweak, sizeof(job->tweak));
	reinit_completion(&t->ended);
	r = xtp_submit(t->xtp, job);
	if (r != -EINPROGRESS)
		return false;
	/* The watchdog ends it if the device does not. */
	wait_for_completion(&t->ended);
	return t->outcome == XTP_DONE;
}

static int test_one(struct test *t, u8 op, unsigned int unit, unsigned int key_bytes)
{
	const bool xts = op != XTENT_ENGINE_OP_ECB;
	const bool run = op == XTENT_ENGINE_OP_RUN;
	const u64 units = min(op == XTENT_ENGINE_OP_XTS ? 1ull : UNITS,
			      div_u64(t->xtp->caps.bytes, unit));
	const unsigned int bytes = units * unit;
	bool good;
	int r;

	/* Then it gets no such request. */
	if (!units)
		return 0;
	r = xt_aes_set_key(&t->data_key, t->bytes, key_bytes) ?:
	    xt_aes_set_key(&t->tweak_key, t->bytes + key_bytes, key_bytes);
	if (r)
		return r;
	xtp_key_new(&t->key, run ? XTENT_ENGINE_CIPHER_XTS : XTENT_ENGINE_CIPHER_ECB, t->bytes,
		    run ? 2 * key_bytes : key_bytes, key_bytes == AES_KEYSIZE_256);
	t->job = (struct xtp_job){
		.done = ended,
		.key = &t->key,
		.op = op,
		.log2_unit = ilog2(unit),
		.units = units,
	};
	expect(t, unit, bytes, xts);
	memset(t->got, 0, bytes);
	good = crypt(t, false, t->plain, t->got, bytes) && !memcmp(t->got, t->cipher, bytes) &&
	       crypt(t, true, t->got, t->got, bytes) && !memcmp(t->got, t->plain, bytes);
	xtp_key_forget(&t->key);
	if (good)
		return 0;
	dev_err(&t->xtp->pdev->dev, "it failed its test: operation %u, units of %u bytes, AES-%u\n",
		op, unit, 8 * key_bytes);
	return -EIO;
}

static int test_all(struct test *t, unsigned int key_bytes)
{
	const struct xtp_caps *caps = &t->xtp->caps;
	unsigned int unit;
	int r = 0;

	if (caps->ciphers & BIT(XTENT_ENGINE_CIPHER_ECB)) {
		r = test_one(t, XTENT_ENGINE_OP_ECB, AES_BLOCK_SIZE, key_bytes);
		for (unit = 512; !r && caps->level >= 2 && unit <= MAX_UNIT; unit *= 2)
			if (unit <= caps->xts_bytes)
				r = test_one(t, XTENT_ENGINE_OP_XTS, unit, key_bytes);
	}
	for (unit = 512; !r && unit <= MAX_UNIT; unit *= 2)
		if (xtp_runs_xts(caps) && caps->units & unit / 512)
			r = test_one(t, XTENT_ENGINE_OP_RUN, unit, key_bytes);
	return r;
}

int xtp_selftest(struct xtp_device *xtp)
{
	struct test *t = kzalloc(sizeof(*t), GFP_KERNEL);
	int r = -ENOMEM;

	if (!t)
		return -ENOMEM;
	t->xtp = xtp;
	init_completion(&t->ended);
	fill(t->bytes, sizeof(t->bytes), 0x5a);
	memset(t->first_tweak, 0xff, sizeof(u64));
	t->plain = kmalloc(UNITS * MAX_UNIT, GFP_KERNEL);
	t->cipher = kmalloc(UNITS * MAX_UNIT, GFP_KERNEL);
	t->got = kmalloc(UNITS * MAX_UNIT, GFP_KERNEL);
	if (t->plain && t->cipher && t->got) {
		r = 0;
		fill(t->plain, UNITS * MAX_UNIT, 0xc3);
		if (xtp->caps.key_bits & 1)
			r = test_all(t, AES_KEYSIZE_128);
		if (!r && xtp->caps.key_bits & 2)
			r = test_all(t, AES_KEYSIZE_256);
	}
	kfree(t->plain);
	kfree(t->cipher);
	kfree(t->got);
	kfree_sensitive(t);
	return r;
}
