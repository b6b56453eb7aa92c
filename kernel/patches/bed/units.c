// SPDX-License-Identifier: GPL-2.0
/*
 * The assembly of the series outside the kernel: compared with a portable XTS, and timed beside the
 * kernel's own one-unit assembly, which the caller assembles from the kernel's source.
 *
 * usage: units check | units time
 */
#include <cpuid.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;

/* As in the kernel, <crypto/aes.h> and <crypto/aes-xts.h>. */
struct enckey {
	u32 len, nrounds, padding[2], rndkeys[60];
};

struct xts_key {
	struct {
		struct enckey enc;
		u32 inv_rndkeys[60];
	} main;
	struct enckey tweak;
};

/* What the kernel's assembly for one unit takes. */
struct old_key {
	u32 enc[60], dec[60], len;
};

static u8 sbox[256], inv_sbox[256];

static u8 times2(u8 a)
{
	return (u8)(a << 1) ^ (a >> 7) * 0x1b;
}

static u8 times(u8 a, u8 b)
{
	u8 sum = 0;

	for (; b; b >>= 1, a = times2(a))
		if (b & 1)
			sum ^= a;
	return sum;
}

static void make_sboxes(void)
{
	for (int i = 0; i < 256; i++) {
		u8 x = 1, y;

		for (int j = 0; j < 254; j++)
			x = times(x, (u8)i);
		y = x ^ (u8)(x << 1 | x >> 7) ^ (u8)(x << 2 | x >> 6) ^ (u8)(x << 3 | x >> 5) ^
		    (u8)(x << 4 | x >> 4) ^ 0x63;
		sbox[i] = y;
		inv_sbox[y] = (u8)i;
	}
}

static void expand(struct enckey *key, const u8 *in, u32 len)
{
	u8 *w = (u8 *)key->rndkeys, rcon = 1;

	key->len = len;
	key->nrounds = 6 + len / 4;
	memcpy(w, in, len);
	for (u32 i = len; i < 16 * (key->nrounds + 1); i += 4) {
		u8 t[4];

		memcpy(t, w + i - 4, 4);
		if (i % len == 0) {
			u8 first = t[0];

			t[0] = sbox[t[1]] ^ rcon;
			t[1] = sbox[t[2]];
			t[2] = sbox[t[3]];
			t[3] = sbox[first];
			rcon = times2(rcon);
		} else if (len == 32 && i % len == 16) {
			for (int j = 0; j < 4; j++)
				t[j] = sbox[t[j]];
		}
		for (int j = 0; j < 4; j++)
			w[i + j] = w[i + j - len] ^ t[j];
	}
}

static void mix(u8 *s, const u8 *row)
{
	for (int c = 0; c < 16; c += 4) {
		u8 t[4];

		memcpy(t, s + c, 4);
		for (int i = 0; i < 4; i++) {
			s[c + i] = 0;
			for (int j = 0; j < 4; j++)
				s[c + i] ^= times(t[j], row[(j - i + 4) % 4]);
		}
	}
}

static const u8 mix_row[4] = { 2, 3, 1, 1 }, inv_mix_row[4] = { 14, 11, 13, 9 };

static void add(u8 *s, const void *key)
{
	for (int i = 0; i < 16; i++)
		s[i] ^= ((const u8 *)key)[i];
}

static void encrypt_block(const struct enckey *key, u8 *s)
{
	add(s, key->rndkeys);
	for (u32 r = 1; r <= key->nrounds; r++) {
		u8 t[16];

		for (int i = 0; i < 16; i++)
			t[i] = sbox[s[(i + 4 * (i % 4)) % 16]];
		memcpy(s, t, 16);
		if (r < key->nrounds)
			mix(s, mix_row);
		add(s, key->rndkeys + 4 * r);
	}
}

static void decrypt_block(const struct enckey *key, u8 *s)
{
	for (u32 r = key->nrounds; r; r--) {
		u8 t[16];

		add(s, key->rndkeys + 4 * r);
		if (r < key->nrounds)
			mix(s, inv_mix_row);
		for (int i = 0; i < 16; i++)
			t[(i + 4 * (i % 4)) % 16] = inv_sbox[s[i]];
		memcpy(s, t, 16);
	}
	add(s, key->rndkeys);
}

static void set_key(struct xts_key *key, const u8 *in, u32 len)
{
	u32 last;

	expand(&key->main.enc, in, len);
	expand(&key->tweak, in + len, len);
	last = key->main.enc.nrounds;
	for (u32 r = 0; r <= last; r++) {
		u8 k[16];

		memcpy(k, key->main.enc.rndkeys + 4 * (last - r), 16);
		if (r && r < last)
			mix(k, inv_mix_row);
		memcpy(key->main.inv_rndkeys + 4 * r, k, 16);
	}
}

/* One unit; the tweak is left as what the unit would go on with. */
static void portable(const struct xts_key *key, u8 *dst, const u8 *src, u32 len, u8 *tweak, int enc)
{
	encrypt_block(&key->tweak, tweak);
	for (; len; len -= 16, src += 16, dst += 16) {
		u8 s[16], carry = tweak[15] >> 7;

		memcpy(s, src, 16);
		add(s, tweak);
		if (enc)
			encrypt_block(&key->main.enc, s);
		else
			decrypt_block(&key->main.enc, s);
		add(s, tweak);
		memcpy(dst, s, 16);
		for (int i = 15; i; i--)
			tweak[i] = (u8)(tweak[i] << 1) | tweak[i - 1] >> 7;
		tweak[0] = (u8)(tweak[0] << 1) ^ carry * 0x87;
	}
}

typedef void tweaks_fn(const struct enckey *key, u8 *tweaks, u32 n);
typedef void units_fn(const void *key, u8 *dst, const u8 *src, u32 unit_len, u32 nunits, u8 *tweaks);
typedef void old_fn(const struct old_key *key, const u8 *src, u8 *dst, int len, u8 *tweak);

#define DECLARE(isa)                                                  \
	extern tweaks_fn aes_xts_encrypt_tweaks_##isa;                \
	extern units_fn aes_xts_encrypt_units_##isa, aes_xts_decrypt_units_##isa; \
	extern old_fn aes_xts_encrypt_##isa, aes_xts_decrypt_##isa
DECLARE(aesni_avx);
DECLARE(vaes_avx2);
DECLARE(vaes_avx512);
extern void aes_xts_encrypt_iv(const struct old_key *key, u8 *iv);

#define VERSION(isa, ebx, ecx)                                                          \
	{ #isa, ebx, ecx, aes_xts_encrypt_tweaks_##isa,                                 \
	  { aes_xts_decrypt_units_##isa, aes_xts_encrypt_units_##isa },                 \
	  { aes_xts_decrypt_##isa, aes_xts_encrypt_##isa } }
#define AVX2 (1u << 5)
#define AVX512 (1u << 16 | 1u << 30 | 1u << 31)
#define VAES (1u << 9 | 1u << 10)
static const struct version {
	const char *name;
	u32 ebx, ecx;	/* bits of CPUID leaf 7 that it needs */
	tweaks_fn *tweaks;
	units_fn *units[2];
	old_fn *old[2];
} versions[] = {
	VERSION(aesni_avx, 0, 0),
	VERSION(vaes_avx2, AVX2, VAES),
	VERSION(vaes_avx512, AVX2 | AVX512, VAES),
};
#define VERSIONS 3

static int has(const struct version *v)
{
	u32 a, b, c, d;

	__cpuid_count(7, 0, a, b, c, d);
	return __builtin_cpu_supports("avx") && __builtin_cpu_supports("aes") &&
	       (b & v->ebx) == v->ebx && (c & v->ecx) == v->ecx;
}

static u64 state = 88172645463325252u;

static u32 random32(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (u32)(state >> 16);
}

static void fill(void *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		((u8 *)p)[i] = (u8)random32();
}

/* So many bytes with a page behind them that nobody may touch. */
static u8 *guarded(size_t len)
{
	size_t whole = (len + 4095) & ~(size_t)4095;
	u8 *p = mmap(NULL, whole + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED || mprotect(p + whole, 4096, PROT_NONE)) {
		perror("mmap");
		exit(1);
	}
	return p + whole - len;
}

#define MOST_UNITS 33
#define MOST_BYTES (MOST_UNITS * 4096)

static void check_one(const struct version *v, const struct xts_key *key, u32 len, u32 n, int enc)
{
	static u8 wanted[MOST_BYTES], wanted_tweaks[16 * MOST_UNITS];
	static u8 *src_end, *dst_end, *tweaks_end;
	u8 *src, *dst, *tweaks;
	int in_place = random32() % 2;

	if (!src_end) {
		src_end = guarded(MOST_BYTES) + MOST_BYTES;
		dst_end = guarded(MOST_BYTES) + MOST_BYTES;
		tweaks_end = guarded(16 * MOST_UNITS) + 16 * MOST_UNITS;
	}
	src = src_end - len * n;
	dst = in_place ? src : dst_end - len * n;
	tweaks = tweaks_end - 16 * n;
	fill(src, len * n);
	fill(tweaks, 16 * n);
	memcpy(wanted_tweaks, tweaks, 16 * n);
	for (u32 i = 0; i < n; i++)
		portable(key, wanted + i * len, src + i * len, len, wanted_tweaks + 16 * i, enc);
	v->tweaks(&key->tweak, tweaks, n);
	v->units[enc](&key->main, dst, src, len, n, tweaks);
	if (memcmp(dst, wanted, len * n) || memcmp(tweaks, wanted_tweaks, 16 * n)) {
		printf("FAILED: %s, AES-%u, %u units of %u, %s%s\n", v->name, 8 * key->main.enc.len, n, len,
		       enc ? "encrypt" : "decrypt", in_place ? ", in place" : "");
		exit(1);
	}
}

/* FIPS 197, C.3. */
static void known_answer(void)
{
	static const u8 wanted[16] = { 0x8e, 0xa2, 0xb7, 0xca, 0x51, 0x67, 0x45, 0xbf,
				       0xea, 0xfc, 0x49, 0x90, 0x4b, 0x49, 0x60, 0x89 };
	u8 in[32], block[16];
	struct enckey key;

	for (int i = 0; i < 32; i++)
		in[i] = (u8)i;
	for (int i = 0; i < 16; i++)
		block[i] = (u8)(17 * i);
	expand(&key, in, 32);
	encrypt_block(&key, block);
	if (memcmp(block, wanted, 16)) {
		puts("FAILED: the portable AES is wrong");
		exit(1);
	}
	decrypt_block(&key, block);
	if (block[1] != 17) {
		puts("FAILED: the portable AES does not decrypt");
		exit(1);
	}
}

static int check(void)
{
	static const u32 lens[] = { 16, 32, 48, 64, 80, 128, 240, 256, 272, 496, 512, 528, 1024, 2048, 4096 };
	struct xts_key key;
	u8 in[64];

	known_answer();
	for (int i = 0; i < VERSIONS; i++) {
		u32 tests = 0;

		if (!has(&versions[i])) {
			printf("%s: NOT RUN: this CPU lacks it\n", versions[i].name);
			continue;
		}
		for (u32 bytes = 16; bytes <= 32; bytes += 8) {
			fill(in, sizeof(in));
			set_key(&key, in, bytes);
			for (u32 l = 0; l < sizeof(lens) / sizeof(*lens); l++)
				for (u32 n = 1; n <= MOST_UNITS; n++, tests += 2) {
					/* The portable code takes most of the time. */
					if (lens[l] * n > 65536 && n % 8 > 1)
						continue;
					check_one(&versions[i], &key, lens[l], n, 1);
					check_one(&versions[i], &key, lens[l], n, 0);
				}
			for (u32 n = 0; n < 200; n++, tests += 2) {
				check_one(&versions[i], &key, 16 * (1 + random32() % 64), 1 + random32() % 17, 1);
				check_one(&versions[i], &key, 16 * (1 + random32() % 64), 1 + random32() % 17, 0);
			}
		}
		printf("%s: %u comparisons with portable code, all equal\n", versions[i].name, tests);
	}
	return 0;
}

static u64 now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (u64)t.tv_sec * 1000000000 + (u64)t.tv_nsec;
}

enum way { OLD, SINGLY, TOGETHER, WAYS };

/* In place over a buffer of the size of a first-level cache's half; ns. */
static u64 pass(const struct version *v, enum way way, const struct xts_key *key, const struct old_key old[2],
		u8 *buffer, u32 len, int enc)
{
	enum { BYTES = 16384, PASSES = 32, SECTION = 4096 };
	const u32 step = way == TOGETHER ? SECTION / len : 1;
	u64 start = now();

	for (int pass = 0; pass < PASSES; pass++)
		for (u32 at = 0; at < BYTES; at += step * len) {
			u8 tweaks[8 * 16];

			for (u32 i = 0; i < step; i++) {
				u64 iv[2] = { at / len + i, 0 };

				memcpy(tweaks + 16 * i, iv, 16);
			}
			if (way == OLD) {
				aes_xts_encrypt_iv(&old[1], tweaks);
				v->old[enc](&old[0], buffer + at, buffer + at, (int)len, tweaks);
			} else {
				v->tweaks(&key->tweak, tweaks, step);
				v->units[enc](&key->main, buffer + at, buffer + at, len, step, tweaks);
			}
		}
	return (now() - start) * 1000 / (PASSES * BYTES / 1024);
}

static int compare(const void *a, const void *b)
{
	return *(const double *)a < *(const double *)b ? -1 : *(const double *)a > *(const double *)b;
}

static double median(double *of, int n)
{
	qsort(of, (size_t)n, sizeof(*of), compare);
	return of[n / 2];
}

static int timings(void)
{
	enum { ROUNDS = 1001 };
	static double gbs[WAYS][ROUNDS], ratio[WAYS][ROUNDS];
	u8 *buffer = guarded(16384), in[64];
	struct old_key old[2] = { 0 };
	struct xts_key key;

	fill(in, sizeof(in));
	set_key(&key, in, 32);
	memcpy(old[0].enc, key.main.enc.rndkeys, 240);
	memcpy(old[0].dec, key.main.inv_rndkeys, 240);
	memcpy(old[1].enc, key.tweak.rndkeys, 240);
	old[0].len = old[1].len = 32;
	printf("GB/s of CPU time, AES-256-XTS in place, medians of %d interleaved rounds; in brackets the median of the "
	       "ratios to the kernel's code for single units\n", ROUNDS);
	printf("| version | direction | unit | kernel 7.3, singly | this, singly | this, 4 KiB a call |\n|---|---|---|---|---|---|\n");
	for (int i = 0; i < VERSIONS; i++)
		for (int enc = 1; has(&versions[i]) && enc >= 0; enc--)
			for (u32 len = 512; len <= 4096; len *= 2) {
				for (int r = 0; r < ROUNDS; r++) {
					double took[WAYS];

					for (int w = 0; w < WAYS; w++)
						took[(w + r) % WAYS] = (double)pass(&versions[i], (w + r) % WAYS, &key, old,
										    buffer, len, enc);
					for (int w = 0; w < WAYS; w++) {
						gbs[w][r] = 1024000 / took[w];
						ratio[w][r] = took[OLD] / took[w];
					}
				}
				printf("| %s | %s | %u | %.2f | %.2f (%.2f) | %.2f (%.2f) |\n", versions[i].name,
				       enc ? "encrypt" : "decrypt", len, median(gbs[OLD], ROUNDS),
				       median(gbs[SINGLY], ROUNDS), median(ratio[SINGLY], ROUNDS),
				       median(gbs[TOGETHER], ROUNDS), median(ratio[TOGETHER], ROUNDS));
			}
	return 0;
}

int main(int argc, char **argv)
{
	make_sboxes();
	if (argc == 2 && !strcmp(argv[1], "check"))
		return check();
	if (argc == 2 && !strcmp(argv[1], "time"))
		return timings();
	fprintf(stderr, "usage: units check | units time\n");
	return 2;
}
