// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * KUnit tests and benchmark for AES-XTS, with one data unit and with several
 */
#include <crypto/aes-xts.h>
#include <crypto/gf128mul.h>
#include <crypto/utils.h>
#include <kunit/run-in-irq-context.h>
#include "test-utils.h"

#define MAX_UNITS	33
#define MAX_DATA_LEN	(MAX_UNITS * 4096)

/* From IEEE 1619.  The data of vectors 4 and 10 is cut to 4 blocks. */
static const struct aes_xts_testvec {
	const char *name;
	const u8 key[64];
	size_t key_len;
	const u8 tweak[AES_BLOCK_SIZE];
	const u8 ptext[64];
	const u8 ctext[64];
	size_t len;
} aes_xts_testvecs[] = {
	{
		.name = "vector 1",
		.key = {
			0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
			0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
			0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
			0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		},
		.key_len = 32,
		.tweak = {
			0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
			0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		},
		.ptext = {
			0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
			0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
			0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
			0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		},
		.ctext = {
			0x91, 0x7c, 0xf6, 0x9e, 0xbd, 0x68, 0xb2, 0xec,
			0x9b, 0x9f, 0xe9, 0xa3, 0xea, 0xdd, 0xa6, 0x92,
			0xcd, 0x43, 0xd2, 0xf5, 0x95, 0x98, 0xed, 0x85,
			0x8c, 0x02, 0xc2, 0x65, 0x2f, 0xbf, 0x92, 0x2e,
		},
		.len = 32,
	},
	{
		.name = "vector 2",
		.key = {
			0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11,
			0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11,
			0x22, 0x22, 0x22, 0x22, 0x22, 0x22, 0x22, 0x22,
			0x22, 0x22, 0x22, 0x22, 0x22, 0x22, 0x22, 0x22,
		},
		.key_len = 32,
		.tweak = {
			0x33, 0x33, 0x33, 0x33, 0x33, 0x00, 0x00, 0x00,
			0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		},
		.ptext = {
			0x44, 0x44, 0x44, 0x44, 0x44, 0x44, 0x44, 0x44,
			0x44, 0x44, 0x44, 0x44, 0x44, 0x44, 0x44, 0x44,
			0x44, 0x44, 0x44, 0x44, 0x44, 0x44, 0x44, 0x44,
			0x44, 0x44, 0x44, 0x44, 0x44, 0x44, 0x44, 0x44,
		},
		.ctext = {
			0xc4, 0x54, 0x18, 0x5e, 0x6a, 0x16, 0x93, 0x6e,
			0x39, 0x33, 0x40, 0x38, 0xac, 0xef, 0x83, 0x8b,
			0xfb, 0x18, 0x6f, 0xff, 0x74, 0x80, 0xad, 0xc4,
			0x28, 0x93, 0x82, 0xec, 0xd6, 0xd3, 0x94, 0xf0,
		},
		.len = 32,
	},
	{
		.name = "vector 3",
		.key = {
			0xff, 0xfe, 0xfd, 0xfc, 0xfb, 0xfa, 0xf9, 0xf8,
			0xf7, 0xf6, 0xf5, 0xf4, 0xf3, 0xf2, 0xf1, 0xf0,
			0x22, 0x22, 0x22, 0x22, 0x22, 0x22, 0x22, 0x22,
			0x22, 0x22, 0x22, 0x22, 0x22, 0x22, 0x22, 0x22,
		},
		.key_len = 32,
		.tweak = {
			0x33, 0x33, 0x33, 0x33, 0x33, 0x00, 0x00, 0x00,
			0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		},
		.ptext = {
			0x44, 0x44, 0x44, 0x44, 0x44, 0x44, 0x44, 0x44,
			0x44, 0x44, 0x44, 0x44, 0x44, 0x44, 0x44, 0x44,
			0x44, 0x44, 0x44, 0x44, 0x44, 0x44, 0x44, 0x44,
			0x44, 0x44, 0x44, 0x44, 0x44, 0x44, 0x44, 0x44,
		},
		.ctext = {
			0xaf, 0x85, 0x33, 0x6b, 0x59, 0x7a, 0xfc, 0x1a,
			0x90, 0x0b, 0x2e, 0xb2, 0x1e, 0xc9, 0x49, 0xd2,
			0x92, 0xdf, 0x4c, 0x04, 0x7e, 0x0b, 0x21, 0x53,
			0x21, 0x86, 0xa5, 0x97, 0x1a, 0x22, 0x7a, 0x89,
		},
		.len = 32,
	},
	{
		.name = "vector 4",
		.key = {
			0x27, 0x18, 0x28, 0x18, 0x28, 0x45, 0x90, 0x45,
			0x23, 0x53, 0x60, 0x28, 0x74, 0x71, 0x35, 0x26,
			0x31, 0x41, 0x59, 0x26, 0x53, 0x58, 0x97, 0x93,
			0x23, 0x84, 0x62, 0x64, 0x33, 0x83, 0x27, 0x95,
		},
		.key_len = 32,
		.tweak = {
			0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
			0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		},
		.ptext = {
			0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07,
			0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f,
			0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17,
			0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f,
			0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27,
			0x28, 0x29, 0x2a, 0x2b, 0x2c, 0x2d, 0x2e, 0x2f,
			0x30, 0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37,
			0x38, 0x39, 0x3a, 0x3b, 0x3c, 0x3d, 0x3e, 0x3f,
		},
		.ctext = {
			0x27, 0xa7, 0x47, 0x9b, 0xef, 0xa1, 0xd4, 0x76,
			0x48, 0x9f, 0x30, 0x8c, 0xd4, 0xcf, 0xa6, 0xe2,
			0xa9, 0x6e, 0x4b, 0xbe, 0x32, 0x08, 0xff, 0x25,
			0x28, 0x7d, 0xd3, 0x81, 0x96, 0x16, 0xe8, 0x9c,
			0xc7, 0x8c, 0xf7, 0xf5, 0xe5, 0x43, 0x44, 0x5f,
			0x83, 0x33, 0xd8, 0xfa, 0x7f, 0x56, 0x00, 0x00,
			0x05, 0x27, 0x9f, 0xa5, 0xd8, 0xb5, 0xe4, 0xad,
			0x40, 0xe7, 0x36, 0xdd, 0xb4, 0xd3, 0x54, 0x12,
		},
		.len = 64,
	},
	{
		.name = "vector 10",
		.key = {
			0x27, 0x18, 0x28, 0x18, 0x28, 0x45, 0x90, 0x45,
			0x23, 0x53, 0x60, 0x28, 0x74, 0x71, 0x35, 0x26,
			0x62, 0x49, 0x77, 0x57, 0x24, 0x70, 0x93, 0x69,
			0x99, 0x59, 0x57, 0x49, 0x66, 0x96, 0x76, 0x27,
			0x31, 0x41, 0x59, 0x26, 0x53, 0x58, 0x97, 0x93,
			0x23, 0x84, 0x62, 0x64, 0x33, 0x83, 0x27, 0x95,
			0x02, 0x88, 0x41, 0x97, 0x16, 0x93, 0x99, 0x37,
			0x51, 0x05, 0x82, 0x09, 0x74, 0x94, 0x45, 0x92,
		},
		.key_len = 64,
		.tweak = {
			0xff, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
			0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		},
		.ptext = {
			0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07,
			0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f,
			0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17,
			0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f,
			0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27,
			0x28, 0x29, 0x2a, 0x2b, 0x2c, 0x2d, 0x2e, 0x2f,
			0x30, 0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37,
			0x38, 0x39, 0x3a, 0x3b, 0x3c, 0x3d, 0x3e, 0x3f,
		},
		.ctext = {
			0x1c, 0x3b, 0x3a, 0x10, 0x2f, 0x77, 0x03, 0x86,
			0xe4, 0x83, 0x6c, 0x99, 0xe3, 0x70, 0xcf, 0x9b,
			0xea, 0x00, 0x80, 0x3f, 0x5e, 0x48, 0x23, 0x57,
			0xa4, 0xae, 0x12, 0xd4, 0x14, 0xa3, 0xe6, 0x3b,
			0x5d, 0x31, 0xe2, 0x76, 0xf8, 0xfe, 0x4a, 0x8d,
			0x66, 0xb3, 0x17, 0xf9, 0xac, 0x68, 0x3f, 0x44,
			0x68, 0x0a, 0x86, 0xac, 0x35, 0xad, 0xfc, 0x33,
			0x45, 0xbe, 0xfe, 0xcb, 0x4b, 0xb1, 0x88, 0xfd,
		},
		.len = 64,
	},
	{
		.name = "vector 15",
		.key = {
			0xff, 0xfe, 0xfd, 0xfc, 0xfb, 0xfa, 0xf9, 0xf8,
			0xf7, 0xf6, 0xf5, 0xf4, 0xf3, 0xf2, 0xf1, 0xf0,
			0xbf, 0xbe, 0xbd, 0xbc, 0xbb, 0xba, 0xb9, 0xb8,
			0xb7, 0xb6, 0xb5, 0xb4, 0xb3, 0xb2, 0xb1, 0xb0,
		},
		.key_len = 32,
		.tweak = {
			0x9a, 0x78, 0x56, 0x34, 0x12, 0x00, 0x00, 0x00,
			0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		},
		.ptext = {
			0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07,
			0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f,
			0x10,
		},
		.ctext = {
			0x6c, 0x16, 0x25, 0xdb, 0x46, 0x71, 0x52, 0x2d,
			0x3d, 0x75, 0x99, 0x60, 0x1d, 0xe7, 0xca, 0x09,
			0xed,
		},
		.len = 17,
	},
};

/* Prepare a random key, the sizes in turn. */
static void random_key(struct kunit *test, struct aes_xts_key *key)
{
	static const size_t key_lens[] = { 32, 48, 64 };
	static size_t turn;
	size_t key_len = key_lens[turn++ % ARRAY_SIZE(key_lens)];
	u8 raw_key[64];

	if (fips_enabled && key_len == 48)
		key_len = 64;
	rand_bytes(raw_key, sizeof(raw_key));
	KUNIT_ASSERT_EQ(test, 0, aes_xts_preparekey(key, raw_key, key_len, 0));
}

/* AES-XTS as its definition has it, block by block, of whole blocks. */
static void reference(u8 *dst, const u8 *src, size_t len,
		      const u8 tweak[AES_BLOCK_SIZE],
		      const struct aes_xts_key *key, bool enc)
{
	le128 mask;

	aes_encrypt(&key->tweak_key, (u8 *)&mask, tweak);
	for (size_t i = 0; i < len; i += AES_BLOCK_SIZE) {
		u8 block[AES_BLOCK_SIZE];

		crypto_xor_cpy(block, &src[i], (u8 *)&mask, AES_BLOCK_SIZE);
		if (enc)
			aes_encrypt(&key->main_key, block, block);
		else
			aes_decrypt(&key->main_key, block, block);
		crypto_xor_cpy(&dst[i], block, (u8 *)&mask, AES_BLOCK_SIZE);
		gf128mul_x_ble(&mask, &mask);
	}
}

static void crypt_units(u8 *dst, const u8 *src, size_t unit_len, size_t nunits,
			u8 tweaks[][AES_BLOCK_SIZE],
			const struct aes_xts_key *key, bool enc)
{
	if (enc)
		aes_xts_encrypt_units(dst, src, unit_len, nunits, tweaks, key);
	else
		aes_xts_decrypt_units(dst, src, unit_len, nunits, tweaks, key);
}

static void test_aes_xts_testvecs(struct kunit *test)
{
	struct aes_xts_key *key = alloc_buf(test, sizeof(*key));

	for (size_t i = 0; i < ARRAY_SIZE(aes_xts_testvecs); i++) {
		const struct aes_xts_testvec *tv = &aes_xts_testvecs[i];
		u8 tweaks[3][AES_BLOCK_SIZE];
		u8 data[3 * sizeof(tv->ptext)];
		int err;

		err = aes_xts_preparekey(key, tv->key, tv->key_len, 0);
		if (fips_enabled &&
		    !memcmp(tv->key, &tv->key[tv->key_len / 2],
			    tv->key_len / 2)) {
			KUNIT_EXPECT_EQ(test, -EINVAL, err);
			continue;
		}
		KUNIT_ASSERT_EQ(test, 0, err);

		memcpy(tweaks[0], tv->tweak, AES_BLOCK_SIZE);
		aes_xts_encrypt(data, tv->ptext, tv->len, tweaks[0], key,
				false);
		KUNIT_EXPECT_MEMEQ_MSG(test, data, tv->ctext, tv->len, "%s",
				       tv->name);
		memcpy(tweaks[0], tv->tweak, AES_BLOCK_SIZE);
		aes_xts_decrypt(data, data, tv->len, tweaks[0], key, false);
		KUNIT_EXPECT_MEMEQ_MSG(test, data, tv->ptext, tv->len, "%s",
				       tv->name);

		/* Three data units that happen to be the same */
		for (int j = 0; j < 3; j++) {
			memcpy(&data[j * tv->len], tv->ptext, tv->len);
			memcpy(tweaks[j], tv->tweak, AES_BLOCK_SIZE);
		}
		aes_xts_encrypt_units(data, data, tv->len, 3, tweaks, key);
		for (int j = 0; j < 3; j++) {
			KUNIT_EXPECT_MEMEQ_MSG(test, &data[j * tv->len],
					       tv->ctext, tv->len, "%s, unit %d",
					       tv->name, j);
			memcpy(tweaks[j], tv->tweak, AES_BLOCK_SIZE);
		}
		aes_xts_decrypt_units(data, data, tv->len, 3, tweaks, key);
		for (int j = 0; j < 3; j++)
			KUNIT_EXPECT_MEMEQ_MSG(test, &data[j * tv->len],
					       tv->ptext, tv->len, "%s, unit %d",
					       tv->name, j);
	}
}

/* One data unit, in one call and in several, against the reference. */
static void test_aes_xts_single_unit(struct kunit *test)
{
	const size_t max_len = 8192;
	struct aes_xts_key *key = alloc_buf(test, sizeof(*key));
	u8 *src = alloc_guarded_buf(test, max_len) + max_len;
	u8 *dst = alloc_guarded_buf(test, max_len) + max_len;
	u8 *ref = alloc_buf(test, max_len);

	for (int i = 0; i < 500; i++) {
		size_t len = max(rand_length(max_len) & ~15, AES_BLOCK_SIZE);
		bool enc = rand_bool();
		u8 *out = rand_bool() ? src - len : dst - len;
		u8 orig_tweak[AES_BLOCK_SIZE], tweak[AES_BLOCK_SIZE];
		size_t pos = 0;

		random_key(test, key);
		rand_bytes(src - len, len);
		rand_bytes(orig_tweak, sizeof(orig_tweak));
		memcpy(tweak, orig_tweak, sizeof(tweak));
		reference(ref, src - len, len, tweak, key, enc);
		while (pos < len) {
			size_t n = len - pos;

			if (rand_bool())
				n = max(rand_length(n) & ~15, AES_BLOCK_SIZE);
			if (enc)
				aes_xts_encrypt(&out[pos], &src[pos - len], n,
						tweak, key, pos != 0);
			else
				aes_xts_decrypt(&out[pos], &src[pos - len], n,
						tweak, key, pos != 0);
			pos += n;
		}
		KUNIT_ASSERT_MEMEQ_MSG(test, out, ref, len,
				       "len=%zu enc=%d in_place=%d", len, enc,
				       out == src - len);
	}
}

/*
 * Several data units against single ones, for every number of them up to
 * MAX_UNITS, and what is a multiple of the block size also against the
 * reference.  The buffers end where they must not be overrun.
 */
static void test_units_of(struct kunit *test, size_t unit_len, u8 *src, u8 *dst,
			  u8 *ref, struct aes_xts_key *key)
{
	u8 *tweaks_end = alloc_guarded_buf(test, MAX_UNITS * AES_BLOCK_SIZE) +
			 MAX_UNITS * AES_BLOCK_SIZE;
	u8 *orig_tweaks = alloc_buf(test, MAX_UNITS * AES_BLOCK_SIZE);

	for (size_t n = 0; n <= MAX_UNITS; n++) {
		size_t len = n * unit_len;
		size_t tweaks_len = n * AES_BLOCK_SIZE;
		u8 (*tweaks)[AES_BLOCK_SIZE] = (void *)(tweaks_end - tweaks_len);
		bool enc = n % 2 ? rand_bool() : n % 4;
		u8 *in = src - len;
		u8 *out = rand_bool() ? in : dst - len;

		if (len > MAX_DATA_LEN)
			break;
		random_key(test, key);
		rand_bytes(in, len);
		rand_bytes(orig_tweaks, tweaks_len);
		for (size_t i = 0; i < n; i++) {
			u8 *tweak = &orig_tweaks[i * AES_BLOCK_SIZE];

			memcpy(tweaks[i], tweak, AES_BLOCK_SIZE);
			if (enc)
				aes_xts_encrypt(&ref[i * unit_len],
						&in[i * unit_len], unit_len,
						tweak, key, false);
			else
				aes_xts_decrypt(&ref[i * unit_len],
						&in[i * unit_len], unit_len,
						tweak, key, false);
		}
		/* One of the single data units against the reference */
		if (n && unit_len % AES_BLOCK_SIZE == 0) {
			size_t i = rand32() % n;
			u8 *block = alloc_buf(test, unit_len);

			reference(block, &in[i * unit_len], unit_len, tweaks[i],
				  key, enc);
			KUNIT_ASSERT_MEMEQ_MSG(test, &ref[i * unit_len], block,
					       unit_len,
					       "single data unit, unit_len=%zu enc=%d",
					       unit_len, enc);
			kunit_kfree(test, block);
		}
		crypt_units(out, in, unit_len, n, tweaks, key, enc);
		KUNIT_ASSERT_MEMEQ_MSG(test, out, ref, len,
				       "unit_len=%zu nunits=%zu enc=%d in_place=%d",
				       unit_len, n, enc, out == in);
		KUNIT_ASSERT_PTR_EQ_MSG(test, NULL,
					memchr_inv(tweaks, 0, tweaks_len),
					"tweaks left behind");
	}
}

static void test_aes_xts_units(struct kunit *test)
{
	static const size_t unit_lens[] = {
		16,  32,  48,  64,  112,  128,	240,  256,  272, 496,
		512, 528, 768, 1024, 2048, 4080, 4096, 4112, 8208,
		/* These need ciphertext stealing. */
		17,  31,  511, 513,
	};
	struct aes_xts_key *key = alloc_buf(test, sizeof(*key));
	u8 *src = alloc_guarded_buf(test, MAX_DATA_LEN) + MAX_DATA_LEN;
	u8 *dst = alloc_guarded_buf(test, MAX_DATA_LEN) + MAX_DATA_LEN;
	u8 *ref = alloc_guarded_buf(test, MAX_DATA_LEN);

	for (size_t i = 0; i < ARRAY_SIZE(unit_lens); i++)
		test_units_of(test, unit_lens[i], src, dst, ref, key);
	/* And some that nobody has thought of */
	for (int i = 0; i < 20; i++)
		test_units_of(test, max(rand_length(4096), AES_BLOCK_SIZE), src,
			      dst, ref, key);
}

#define IRQ_TEST_UNITS		9
#define IRQ_TEST_UNIT_LEN	512
#define IRQ_TEST_LEN		(IRQ_TEST_UNITS * IRQ_TEST_UNIT_LEN)

struct aes_xts_irq_state {
	struct aes_xts_key key;
	u8 tweaks[IRQ_TEST_UNITS][AES_BLOCK_SIZE];
	u8 ptext[IRQ_TEST_LEN];
	u8 ctext[IRQ_TEST_LEN];
	/* One buffer for each context: task, softirq, hardirq */
	u8 bufs[3][IRQ_TEST_LEN];
};

static bool irq_test_func(void *state_)
{
	struct aes_xts_irq_state *state = state_;
	u8 tweaks[IRQ_TEST_UNITS][AES_BLOCK_SIZE];
	u8 *buf = state->bufs[in_hardirq() ? 2 : in_serving_softirq() ? 1 : 0];

	memcpy(tweaks, state->tweaks, sizeof(tweaks));
	aes_xts_encrypt_units(buf, state->ptext, IRQ_TEST_UNIT_LEN,
			      IRQ_TEST_UNITS, tweaks, &state->key);
	if (memcmp(buf, state->ctext, IRQ_TEST_LEN))
		return false;

	memcpy(tweaks, state->tweaks, sizeof(tweaks));
	aes_xts_decrypt_units(buf, buf, IRQ_TEST_UNIT_LEN, IRQ_TEST_UNITS,
			      tweaks, &state->key);
	return !memcmp(buf, state->ptext, IRQ_TEST_LEN);
}

/* In all contexts at once, so that also the fallback without the FPU runs. */
static void test_aes_xts_units_interrupt_context(struct kunit *test)
{
	struct aes_xts_irq_state *state = alloc_buf(test, sizeof(*state));

	random_key(test, &state->key);
	rand_bytes(state->ptext, IRQ_TEST_LEN);
	rand_bytes((u8 *)state->tweaks, sizeof(state->tweaks));
	for (int i = 0; i < IRQ_TEST_UNITS; i++)
		reference(&state->ctext[i * IRQ_TEST_UNIT_LEN],
			  &state->ptext[i * IRQ_TEST_UNIT_LEN],
			  IRQ_TEST_UNIT_LEN, state->tweaks[i], &state->key,
			  true);
	kunit_run_irq_test(test, irq_test_func, 20000, state);
}

static void test_aes_xts_preparekey(struct kunit *test)
{
	struct aes_xts_key *key = alloc_buf(test, sizeof(*key));
	u8 raw_key[64];

	rand_bytes(raw_key, sizeof(raw_key));
	for (size_t len = 0; len <= sizeof(raw_key); len++) {
		bool ok = len == 32 || len == 64 ||
			  (len == 48 && !fips_enabled);

		KUNIT_EXPECT_EQ_MSG(test, ok ? 0 : -EINVAL,
				    aes_xts_preparekey(key, raw_key, len, 0),
				    "len=%zu", len);
	}
	memcpy(&raw_key[32], raw_key, 32);
	KUNIT_EXPECT_EQ(test, fips_enabled ? -EINVAL : 0,
			aes_xts_preparekey(key, raw_key, 64, 0));
	KUNIT_EXPECT_EQ(test, -EINVAL,
			aes_xts_preparekey(key, raw_key, 64,
					   XTS_FORBID_WEAK_KEYS));
	/* A rejected key leaves nothing behind. */
	KUNIT_EXPECT_PTR_EQ(test, NULL, memchr_inv(key, 0, sizeof(*key)));
}

static u64 benchmark_one(u8 *data, size_t unit_len, size_t per_call,
			 const struct aes_xts_key *key, bool enc)
{
	const size_t total = 16384, iters = 10000000 / total;
	u64 index = 0, t;

	preempt_disable();
	t = ktime_get_ns();
	for (size_t i = 0; i < iters; i++) {
		for (size_t pos = 0; pos < total; pos += per_call * unit_len) {
			u8 tweaks[8][AES_BLOCK_SIZE] = {};

			for (size_t j = 0; j < per_call; j++)
				put_unaligned_le64(index++, tweaks[j]);
			crypt_units(&data[pos], &data[pos], unit_len, per_call,
				    tweaks, key, enc);
		}
	}
	t = ktime_get_ns() - t;
	preempt_enable();
	return div64_u64((u64)total * iters * 1000, t ?: 1);
}

static void benchmark_aes_xts(struct kunit *test)
{
	struct aes_xts_key *key = alloc_buf(test, sizeof(*key));
	u8 *data = alloc_buf(test, 16384);
	u8 raw_key[64];

	if (!IS_ENABLED(CONFIG_CRYPTO_LIB_BENCHMARK))
		kunit_skip(test, "not enabled");

	rand_bytes(data, 16384);
	rand_bytes(raw_key, sizeof(raw_key));
	KUNIT_ASSERT_EQ(test, 0,
			aes_xts_preparekey(key, raw_key, sizeof(raw_key), 0));
	kunit_info(test, "code for several units: %s",
		   aes_xts_units_accelerated() ? "yes" : "no");

	/* Warm-up */
	benchmark_one(data, 4096, 1, key, true);

	for (size_t len = 512; len <= 4096; len *= 2) {
		for (size_t n = 1; n * len <= 4096; n *= 2)
			kunit_info(test,
				   "unit_len=%zu nunits=%zu: enc %llu MB/s, dec %llu MB/s",
				   len, n,
				   benchmark_one(data, len, n, key, true),
				   benchmark_one(data, len, n, key, false));
	}
}

static struct kunit_case aes_xts_test_cases[] = {
	KUNIT_CASE(test_aes_xts_testvecs),
	KUNIT_CASE(test_aes_xts_preparekey),
	KUNIT_CASE(test_aes_xts_single_unit),
	KUNIT_CASE(test_aes_xts_units),
	KUNIT_CASE(test_aes_xts_units_interrupt_context),
	KUNIT_CASE(benchmark_aes_xts),
	{},
};

static struct kunit_suite aes_xts_test_suite = {
	.name = "aes_xts",
	.test_cases = aes_xts_test_cases,
};

kunit_test_suite(aes_xts_test_suite);

MODULE_DESCRIPTION("KUnit tests and benchmark for AES-XTS");
MODULE_LICENSE("GPL");
