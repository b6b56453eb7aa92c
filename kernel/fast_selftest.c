// SPDX-License-Identifier: GPL-2.0
/*
 * The self-test of FAST. The answers come from a model written out from the paper,
 * which agrees with the authors' own code. The first two blocks of a ciphertext
 * depend on all the others through the hash, so they stand for the whole.
 */
#include <linux/slab.h>

#include "fast.h"

#define MAX_LEN 4096
#define MAX_PIECES 8

/* Key 00 01 02 ..., tweak 01 02 ... 10, plaintext byte i is 7 i. */
static const struct answer {
	const struct fast_mode *mode;
	unsigned int key_size, len;
	u8 front[32];
} answers[] = {
	{
		.mode = &fast_brw,
		.key_size = 16,
		.len = 512,
		.front = {
			0xa3, 0xcd, 0x23, 0x9c, 0x1b, 0x6a, 0xdb, 0xd5,
			0x69, 0x4f, 0x50, 0x02, 0xf0, 0x46, 0x05, 0xd9,
			0x70, 0x26, 0xf5, 0xb5, 0x23, 0x63, 0x26, 0xf9,
			0x3e, 0x01, 0x7f, 0x6b, 0x8d, 0xa0, 0x30, 0x59,
		},
	},
	{
		.mode = &fast_brw,
		.key_size = 16,
		.len = 4096,
		.front = {
			0x1a, 0xf4, 0x69, 0x77, 0xbc, 0x56, 0x17, 0x25,
			0xb1, 0x42, 0x64, 0xba, 0xda, 0xd0, 0xa6, 0x62,
			0x0b, 0x5a, 0x6a, 0x4e, 0xfe, 0x24, 0x62, 0x77,
			0xb2, 0x71, 0x26, 0x62, 0x28, 0xf4, 0x7b, 0x93,
		},
	},
	{
		.mode = &fast_brw,
		.key_size = 32,
		.len = 512,
		.front = {
			0xf1, 0x89, 0x0f, 0xe3, 0xa0, 0x12, 0x86, 0x94,
			0x55, 0xe8, 0xf0, 0xc7, 0x7c, 0x9c, 0x1e, 0xfb,
			0x4a, 0x7e, 0x38, 0xe3, 0x9c, 0x09, 0xb0, 0xf9,
			0x1e, 0x11, 0x6b, 0xc0, 0x03, 0x60, 0x75, 0x87,
		},
	},
	{
		.mode = &fast_brw,
		.key_size = 32,
		.len = 4096,
		.front = {
			0x43, 0x5f, 0xac, 0x8d, 0x5a, 0x1a, 0xf8, 0x11,
			0xd7, 0xdc, 0x79, 0x27, 0xd7, 0xf5, 0x22, 0x11,
			0xe0, 0x08, 0x77, 0xd3, 0x75, 0xd8, 0xc9, 0x1e,
			0xda, 0x38, 0xa8, 0xa7, 0x85, 0x2b, 0xc1, 0x1d,
		},
	},
	{
		.mode = &fast_horner,
		.key_size = 16,
		.len = 512,
		.front = {
			0x69, 0x7f, 0x8e, 0xf8, 0x99, 0x34, 0x51, 0xe2,
			0x68, 0x87, 0x8c, 0x0c, 0x9b, 0xee, 0xfe, 0x14,
			0xe8, 0x5b, 0x07, 0x67, 0x18, 0x8e, 0x6e, 0xdb,
			0xb5, 0x20, 0x8b, 0xa6, 0x21, 0xd2, 0xc2, 0x46,
		},
	},
	{
		.mode = &fast_horner,
		.key_size = 16,
		.len = 4096,
		.front = {
			0x33, 0x05, 0x72, 0xb3, 0x27, 0x0e, 0xc4, 0xf4,
			0xf0, 0xf0, 0x0e, 0x4c, 0x49, 0x1b, 0xfd, 0xbe,
			0x6e, 0x27, 0xdd, 0x9d, 0xfd, 0x49, 0xcb, 0x4c,
			0xe6, 0x8f, 0x72, 0xa9, 0x85, 0x0a, 0xf9, 0xde,
		},
	},
	{
		.mode = &fast_horner,
		.key_size = 32,
		.len = 512,
		.front = {
			0xc4, 0x6b, 0x0a, 0x97, 0xe3, 0xe5, 0x23, 0x19,
			0x85, 0xa5, 0xd6, 0xba, 0x4e, 0xb6, 0xe8, 0x1f,
			0xfc, 0x81, 0xdc, 0xcb, 0x25, 0xfa, 0x79, 0x73,
			0xa9, 0xd1, 0x1f, 0xb5, 0xf4, 0x6b, 0xcf, 0x82,
		},
	},
	{
		.mode = &fast_horner,
		.key_size = 32,
		.len = 4096,
		.front = {
			0x4f, 0xe3, 0xdd, 0x7c, 0xea, 0x59, 0xa1, 0x77,
			0x5d, 0xf7, 0xdc, 0xf1, 0x20, 0x68, 0x93, 0xdb,
			0x56, 0x04, 0xa4, 0x65, 0x02, 0xea, 0x4d, 0xda,
			0x6d, 0xe0, 0x94, 0x92, 0x7c, 0x2a, 0x19, 0xd8,
		},
	},
};

/* How a request is cut into pieces of memory. */
static const unsigned int cuts[][MAX_PIECES] = {
	{ MAX_LEN },
	{ 512, MAX_LEN },
	{ 1, 14, 2, 40, 7, 96, 33, MAX_LEN },
};

struct test {
	u8 plain[MAX_LEN], data[MAX_LEN], result[MAX_LEN];
	struct scatterlist from[MAX_PIECES], to[MAX_PIECES];
	struct fast_scratch *scratch;
};

static void cut(struct scatterlist *sg, u8 *data, unsigned int len, const unsigned int *pieces)
{
	unsigned int i;

	sg_init_table(sg, MAX_PIECES);
	for (i = 0; len; i++) {
		unsigned int n = min(pieces[i], len);

		sg_set_buf(&sg[i], data, n);
		data += n;
		len -= n;
	}
	sg_mark_end(&sg[i - 1]);
}

static int run(const struct answer *answer, const struct fast_key *key, struct test *t,
	       bool encrypt)
{
	u8 tweak[16];
	const struct fast_job job = {
		.mode = answer->mode,
		.key = key,
		.scratch = t->scratch,
		.src = t->from,
		.dst = t->to,
		.len = answer->len,
		.tweak = tweak,
		.flags = CRYPTO_TFM_REQ_MAY_SLEEP,
	};
	unsigned int i;

	for (i = 0; i < sizeof(tweak); i++)
		tweak[i] = i + 1;
	return fast_crypt(&job, encrypt);
}

static int check(const struct answer *answer, struct fast_key *key, struct test *t)
{
	unsigned int i, j;
	u8 bytes[32];
	int r;

	for (i = 0; i < sizeof(bytes); i++)
		bytes[i] = i;
	r = fast_set_key(key, bytes, answer->key_size, 0);
	for (i = 0; !r && i < ARRAY_SIZE(cuts); i++) {
		for (j = 0; !r && j < ARRAY_SIZE(cuts); j++) {
			cut(t->from, t->plain, answer->len, cuts[i]);
			cut(t->to, t->data, answer->len, cuts[j]);
			r = run(answer, key, t, true);
			if (!r && memcmp(t->data, answer->front, sizeof(answer->front)))
				r = -EBADMSG;
			cut(t->from, t->data, answer->len, cuts[j]);
			cut(t->to, t->result, answer->len, cuts[i]);
			r = r ?: run(answer, key, t, false);
			if (!r && memcmp(t->result, t->plain, answer->len))
				r = -EBADMSG;
			/* In place. */
			cut(t->to, t->data, answer->len, cuts[j]);
			r = r ?: run(answer, key, t, false);
			if (!r && memcmp(t->data, t->plain, answer->len))
				r = -EBADMSG;
		}
	}
	return r;
}

static int check_all(struct fast_key *key, struct test *t)
{
	unsigned int i;
	int r = 0;

	t->scratch = kmalloc(fast_scratch_size(key), GFP_KERNEL);
	if (!t->scratch)
		return -ENOMEM;
	for (i = 0; i < MAX_LEN; i++)
		t->plain[i] = 7 * i;
	for (i = 0; !r && i < ARRAY_SIZE(answers); i++) {
		r = check(&answers[i], key, t);
		if (r)
			pr_err("xtent_fast: self-test of %s, %u bytes, failed: %d\n",
			       answers[i].mode->name, answers[i].len, r);
	}
	kfree(t->scratch);
	return r;
}

int fast_selftest(void)
{
	struct test *t = kzalloc(sizeof(*t), GFP_KERNEL);
	struct fast_key *key = kzalloc(sizeof(*key), GFP_KERNEL);
	int r = -ENOMEM;

	if (!t || !key)
		goto out;
	key->cipher = crypto_alloc_cipher("aes", 0, 0);
	r = PTR_ERR_OR_ZERO(key->cipher);
	if (r)
		goto out;
	key->ecb = crypto_alloc_skcipher("ecb(aes)", 0, CRYPTO_ALG_ASYNC);
	r = PTR_ERR_OR_ZERO(key->ecb);
	if (!r) {
		r = check_all(key, t);
		crypto_free_skcipher(key->ecb);
	}
	crypto_free_cipher(key->cipher);
out:
	kfree_sensitive(key);
	kfree(t);
	return r;
}
