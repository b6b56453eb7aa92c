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

/*
 * A block, by a direction's tables and keys. A column takes its four bytes from itself and from columns that are
 * `turn` further on each time: the inverse cipher goes the other way round.
 */
static inline __attribute__((always_inline)) void apply(const u32 *k, unsigned int rounds, const u32 *table,
							const u8 *box, const unsigned int turn, u32 *out)
{
	const unsigned int second = turn, third = 2, fourth = 4 - turn;
	const u32 *end = k + 4 * rounds;
	u32 a = out[0] ^ k[0], b = out[second] ^ k[second], c = out[third] ^ k[third], d = out[fourth] ^ k[fourth];

	for (k += 4; k != end; k += 4) {
		u32 e = COLUMN(table, a, b, c, d, k[0]), f = COLUMN(table, b, c, d, a, k[second]);
		u32 g = COLUMN(table, c, d, a, b, k[third]);

		d = COLUMN(table, d, a, b, c, k[fourth]);
		a = e;
		b = f;
		c = g;
	}
	out[0] = LAST(box, a, b, c, d, k[0]);
	out[second] = LAST(box, b, c, d, a, k[second]);
	out[third] = LAST(box, c, d, a, b, k[third]);
	out[fourth] = LAST(box, d, a, b, c, k[fourth]);
}

void aes_encrypt(int which, u8 *block)
{
	const struct key *key = &aes.keys[which];

	apply(key->encrypt, key->rounds, aes.forward, aes.sbox, 1, (u32 *)block);
}

void aes_decrypt(int which, u8 *block)
{
	const struct key *key = &aes.keys[which];

	apply(key->decrypt, key->rounds, aes.backward, aes.inverse_sbox, 3, (u32 *)block);
}
