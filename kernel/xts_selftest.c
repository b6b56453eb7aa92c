// SPDX-License-Identifier: GPL-2.0
/*
 * The self-test of the synchronous XTS: a vector of IEEE 1619, and runs of every
 * length against XTS written out plainly on the kernel's generic AES. And how fast it is.
 */
#include <linux/math64.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>

#include "xtent.h"

#define TEST_BYTES (XT_BATCH * 512)

/* IEEE 1619-2007, annex B, vector 4, its first two blocks. */
static const u8 known_key[32] = {
	0x27, 0x18, 0x28, 0x18, 0x28, 0x45, 0x90, 0x45,
	0x23, 0x53, 0x60, 0x28, 0x74, 0x71, 0x35, 0x26,
	0x31, 0x41, 0x59, 0x26, 0x53, 0x58, 0x97, 0x93,
	0x23, 0x84, 0x62, 0x64, 0x33, 0x83, 0x27, 0x95,
};
static const u8 known_cipher[32] = {
	0x27, 0xa7, 0x47, 0x9b, 0xef, 0xa1, 0xd4, 0x76,
	0x48, 0x9f, 0x30, 0x8c, 0xd4, 0xcf, 0xa6, 0xe2,
	0xa9, 0x6e, 0x4b, 0xbe, 0x32, 0x08, 0xff, 0x25,
	0x28, 0x7d, 0xd3, 0x81, 0x96, 0x16, 0xe8, 0x9c,
};

/* By the kernel's AES of single blocks. */
struct plain_xts {
	struct xt_aes_key data, tweak;
};

static int plain_set_key(struct plain_xts *xts, const u8 *key, unsigned int key_size)
{
	int r = xt_aes_set_key(&xts->data, key, key_size / 2);

	return r ?: xt_aes_set_key(&xts->tweak, key + key_size / 2, key_size / 2);
}

static void plain_encrypt(const struct plain_xts *xts, const u8 *iv, const u8 *src, u8 *dst,
			  unsigned int bytes)
{
	u8 mask[16], block[16];
	unsigned int i, j;

	aes_encrypt(&xts->tweak, mask, iv);
	for (i = 0; i < bytes; i += 16) {
		u8 carry = mask[15] >> 7;

		for (j = 0; j < 16; j++)
			block[j] = src[i + j] ^ mask[j];
		aes_encrypt(&xts->data, block, block);
		for (j = 0; j < 16; j++)
			dst[i + j] = block[j] ^ mask[j];
		for (j = 15; j > 0; j--)
			mask[j] = mask[j] << 1 | mask[j - 1] >> 7;
		mask[0] = mask[0] << 1 ^ (carry ? 0x87 : 0);
	}
}

struct test {
	struct xt_xts xts;
	struct plain_xts plain_xts;
	struct xt_batch batch;
	u8 plain[TEST_BYTES], cipher[TEST_BYTES], result[TEST_BYTES];
};

static int known_answer(struct test *t)
{
	unsigned int i;
	int r;

	r = xt_xts_set_key(&t->xts, known_key, sizeof(known_key));
	if (r)
		return r;
	for (i = 0; i < 512; i++)
		t->plain[i] = i;
	t->batch.count = 1;
	t->batch.iv[0] = 0;
	t->batch.big_endian = false;
	t->batch.src[0] = t->plain;
	t->batch.dst[0] = t->result;
	xt_xts_crypt(&t->xts, true, &t->batch, 512);
	return memcmp(t->result, known_cipher, sizeof(known_cipher)) ? -EBADMSG : 0;
}

static int compare(struct test *t, unsigned int key_size, unsigned int sector_size)
{
	u8 key[64], iv[16] __aligned(8);
	unsigned int count, i;
	int r;

	get_random_bytes(key, sizeof(key));
	get_random_bytes(t->plain, sizeof(t->plain));
	get_random_bytes(t->batch.iv, sizeof(t->batch.iv));
	t->batch.big_endian = t->plain[0] & 1;
	r = xt_xts_set_key(&t->xts, key, key_size) ?: plain_set_key(&t->plain_xts, key, key_size);
	memzero_explicit(key, sizeof(key));
	if (r)
		return r;
	for (i = 0; i < TEST_BYTES / sector_size; i++) {
		xt_batch_iv(&t->batch, i, iv);
		plain_encrypt(&t->plain_xts, iv, t->plain + i * sector_size,
			      t->cipher + i * sector_size, sector_size);
	}
	for (count = 1; count <= TEST_BYTES / sector_size; count++) {
		t->batch.count = count;
		memset(t->result, 0, sizeof(t->result));
		for (i = 0; i < count; i++) {
			t->batch.src[i] = t->plain + i * sector_size;
			t->batch.dst[i] = t->result + i * sector_size;
		}
		xt_xts_crypt(&t->xts, true, &t->batch, sector_size);
		if (memcmp(t->result, t->cipher, count * sector_size) ||
		    memchr_inv(t->result + count * sector_size, 0,
			       TEST_BYTES - count * sector_size))
			return -EBADMSG;
		/* Back, in place. */
		for (i = 0; i < count; i++)
			t->batch.src[i] = t->batch.dst[i];
		xt_xts_crypt(&t->xts, false, &t->batch, sector_size);
		if (memcmp(t->result, t->plain, count * sector_size))
			return -EBADMSG;
	}
	return 0;
}

int xt_xts_selftest(const struct xt_xts_backend *backend)
{
	static const unsigned int key_sizes[] = { 32, 48, 64 };
	unsigned int i, sector_size;
	struct test *t;
	int r;

	t = kvmalloc(sizeof(*t), GFP_KERNEL);
	if (!t)
		return -ENOMEM;
	t->xts.backend = backend;
	r = known_answer(t);
	for (i = 0; !r && i < ARRAY_SIZE(key_sizes); i++)
		for (sector_size = 512; !r && sector_size <= 4096; sector_size *= 2)
			r = compare(t, key_sizes[i], sector_size);
	kvfree(t);
	return r;
}

unsigned int xt_xts_measure(const struct xt_xts_backend *backend)
{
	const unsigned int at_once = 16;
	u64 best = U64_MAX;
	struct test *t;
	unsigned int i, j;

	t = kvzalloc(sizeof(*t), GFP_KERNEL);
	if (!t)
		return 0;
	t->xts.backend = backend;
	t->batch.count = 4096 / 512;
	for (i = 0; i < t->batch.count; i++) {
		t->batch.src[i] = t->plain + i * 512;
		t->batch.dst[i] = t->result + i * 512;
	}
	/* AES-256, with a key of zeros. The best, since interrupts and neighbours take time, too. */
	if (!xt_xts_set_key(&t->xts, t->plain, 64)) {
		for (i = 0; i < 8; i++) {
			u64 start = ktime_get_ns();

			for (j = 0; j < at_once; j++)
				xt_xts_crypt(&t->xts, true, &t->batch, 512);
			best = min(best, ktime_get_ns() - start);
		}
	}
	kvfree(t);
	return clamp_t(u64, div_u64(best, at_once), 1, U32_MAX);
}
