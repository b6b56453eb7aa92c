// SPDX-License-Identifier: MIT OR Apache-2.0
#include "aes.h"

struct key {
	unsigned int rounds;
	u32 encrypt[60], decrypt[60];
};

/*
 * SubBytes with MixColumns for a column's first byte, and alone; and their inverses. The column's other
 * bytes turn the same words: tables for them, as the kernel's aes-generic has, would take the whole cache.
 * In it all of this has lines of its own.
 */
static struct {
	u32 forward[256], backward[256];
	u8 sbox[256], inverse_sbox[256];
	struct key keys[AES_KEYS];
} aes __attribute__((aligned(4096)));

static u32 rotate(u32 x, unsigned int bits)
{
	return x << bits | x >> (32 - bits);
}

static u8 times_2(u8 x)
{
	return x << 1 ^ (x & 0x80 ? 0x1b : 0);
}

static u8 times(u8 a, u8 b)
{
	u8 product = 0;

	for (; b; b >>= 1, a = times_2(a))
		product ^= b & 1 ? a : 0;
	return product;
}

void aes_init(void)
{
	u8 power = 1, inverse = 1;
	unsigned int i, x;

	/* 3 generates all elements but 0, and 0xf6 is its inverse. */
	do {
		u8 s = inverse;

		for (i = 1; i < 5; i++)
			s ^= inverse << i | inverse >> (8 - i);
		aes.sbox[power] = s ^ 0x63;
		power = times(power, 3);
		inverse = times(inverse, 0xf6);
	} while (power != 1);
	aes.sbox[0] = 0x63;
	for (x = 0; x < 256; x++)
		aes.inverse_sbox[aes.sbox[x]] = x;
	for (x = 0; x < 256; x++) {
		u8 s = aes.sbox[x], t = aes.inverse_sbox[x];
		u32 column = times(s, 2) | s << 8 | s << 16 | (u32)times(s, 3) << 24;
		u32 inverse_column = times(t, 14) | times(t, 9) << 8 | times(t, 13) << 16 |
				     (u32)times(t, 11) << 24;

		aes.forward[x] = column;
		aes.backward[x] = inverse_column;
	}
}

static u32 substitute(u32 x)
{
	return aes.sbox[x & 255] | aes.sbox[x >> 8 & 255] << 8 | aes.sbox[x >> 16 & 255] << 16 |
	       (u32)aes.sbox[x >> 24] << 24;
}

/* One column: bytes of four columns, by a table, and the key. */
#define COLUMN(table, a, b, c, d, k)                                                              \
	((table)[(a) & 255] ^ rotate((table)[(b) >> 8 & 255], 8) ^                               \
	 rotate((table)[(c) >> 16 & 255], 16) ^ rotate((table)[(d) >> 24], 24) ^ (k))

/* InvMixColumns of a column: `backward` undoes SubBytes too, which is put in first. */
static u32 inverse_mix(u32 x)
{
	x = substitute(x);
	return COLUMN(aes.backward, x, x, x, x, 0);
}

void aes_set_key(int which, const u8 *bytes, unsigned int bits)
{
	struct key *key = &aes.keys[which];
	const unsigned int words = bits / 32, all = 4 * (words + 7);
	u8 constant = 1;
	unsigned int i;

	key->rounds = words + 6;
	for (i = 0; i < words; i++)
		key->encrypt[i] = bytes[4 * i] | bytes[4 * i + 1] << 8 | bytes[4 * i + 2] << 16 |
				  (u32)bytes[4 * i + 3] << 24;
	for (; i < all; i++) {
		u32 word = key->encrypt[i - 1];

		if (i % words == 0) {
			word = substitute(rotate(word, 24)) ^ constant;
			constant = times_2(constant);
		} else if (words == 8 && i % 8 == 4) {
			word = substitute(word);
		}
		key->encrypt[i] = key->encrypt[i - words] ^ word;
	}
	for (i = 0; i < all; i++) {
		u32 word = key->encrypt[all - 4 - i / 4 * 4 + i % 4];

		key->decrypt[i] = i < 4 || i >= all - 4 ? word : inverse_mix(word);
	}
}

/* The same in the last round. */
#define LAST(box, a, b, c, d, k)                                                                  \
	(((box)[(a) & 255] | (box)[(b) >> 8 & 255] << 8 | (box)[(c) >> 16 & 255] << 16 |         \
	  (u32)(box)[(d) >> 24] << 24) ^ (k))

void aes_encrypt(int which, u8 *block)
{
	const struct key *key = &aes.keys[which];
	const u32 *k = key->encrypt, *end = k + 4 * key->rounds;
	u32 *out = (u32 *)block;
	u32 a = out[0] ^ k[0], b = out[1] ^ k[1], c = out[2] ^ k[2], d = out[3] ^ k[3];

	for (k += 4; k != end; k += 4) {
		u32 e = COLUMN(aes.forward, a, b, c, d, k[0]), f = COLUMN(aes.forward, b, c, d, a, k[1]);
		u32 g = COLUMN(aes.forward, c, d, a, b, k[2]);

		d = COLUMN(aes.forward, d, a, b, c, k[3]);
		a = e;
		b = f;
		c = g;
	}
	out[0] = LAST(aes.sbox, a, b, c, d, k[0]);
	out[1] = LAST(aes.sbox, b, c, d, a, k[1]);
	out[2] = LAST(aes.sbox, c, d, a, b, k[2]);
	out[3] = LAST(aes.sbox, d, a, b, c, k[3]);
}

void aes_decrypt(int which, u8 *block)
{
	const struct key *key = &aes.keys[which];
	const u32 *k = key->decrypt, *end = k + 4 * key->rounds;
	u32 *out = (u32 *)block;
	u32 a = out[0] ^ k[0], b = out[1] ^ k[1], c = out[2] ^ k[2], d = out[3] ^ k[3];

	for (k += 4; k != end; k += 4) {
		u32 e = COLUMN(aes.backward, a, d, c, b, k[0]), f = COLUMN(aes.backward, b, a, d, c, k[1]);
		u32 g = COLUMN(aes.backward, c, b, a, d, k[2]);

		d = COLUMN(aes.backward, d, c, b, a, k[3]);
		a = e;
		b = f;
		c = g;
	}
	out[0] = LAST(aes.inverse_sbox, a, d, c, b, k[0]);
	out[1] = LAST(aes.inverse_sbox, b, a, d, c, k[1]);
	out[2] = LAST(aes.inverse_sbox, c, b, a, d, k[2]);
	out[3] = LAST(aes.inverse_sbox, d, c, b, a, k[3]);
}
