// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Adiantum by the code that Linux has for x86, one sector per call, and by libsector_cipher: whether they
// agree, then how long each takes, in turns. compare.py builds it with the kernel's files, and reads what it
// prints.
//
// adiantum check | adiantum time ROUNDS MILLISECONDS
//
// The construction is that of the paper (ePrint 2018/720), with the calls that Linux makes for one sector in
// one page. What is not here is its crypto API around them, and that a kernel has to ask for the vector registers.

#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <crypto/internal/poly1305.h>

#include "sector_cipher.h"

// Of chacha-*-x86_64.S, nh-*-x86_64.S and aesni-intel_asm.S; lengths are in bytes.
void hchacha_block_ssse3(const u32 *state, u32 *out, int rounds);
void chacha_4block_xor_ssse3(u32 *state, u8 *dst, const u8 *src, unsigned int len, int rounds);
void chacha_8block_xor_avx2(u32 *state, u8 *dst, const u8 *src, unsigned int len, int rounds);
void chacha_8block_xor_avx512vl(u32 *state, u8 *dst, const u8 *src, unsigned int len, int rounds);
void nh_sse2(const u32 *key, const u8 *message, size_t len, u64 hash[4]);
void nh_avx2(const u32 *key, const u8 *message, size_t len, u64 hash[4]);
int aesni_set_key(void *aes, const u8 *key, unsigned int len);
void aesni_enc(const void *aes, u8 *dst, const u8 *src);
void aesni_dec(const void *aes, u8 *dst, const u8 *src);

enum { BLOCK = 16, TWEAK = 32, KEY = 32, NH_KEY = 1072, NH_MESSAGE = 1024, NH_HASH = 32 };
enum { SECTORS = 64, LONGEST = 4096, CONTENDERS = 16 };

// What Linux has code for; with AVX-512VL it takes NH of AVX2.
enum vectors { SSE, AVX2, AVX512VL, VECTORS };
static const char *const vectors_name[VECTORS] = {"SSE", "AVX2", "AVX-512VL"};

struct linux_cipher {
    // Round keys of either direction, then the key's length: 15 rounds are the most.
    _Alignas(16) u8 aes[2 * 15 * BLOCK + 4];
    u32 nh[NH_KEY / 4];
    struct poly1305_core_key header, message;
    u32 key[KEY / 4];
    int rounds;
    enum vectors vectors;
};

static void xchacha(const struct linux_cipher *cipher, const u8 iv[32], u8 *data, unsigned int len)
{
    static const char constant[16] = "expand 32-byte k";
    _Alignas(16) u32 state[16];

    memcpy(state, constant, 16);
    memcpy(state + 4, cipher->key, KEY);
    memcpy(state + 12, iv, 16);
    hchacha_block_ssse3(state, state + 4, cipher->rounds);
    // The position in the stream, then what the nonce has beyond 128 bits.
    memcpy(state + 12, iv + 24, 8);
    memcpy(state + 14, iv + 16, 8);
    // Sectors are whole fours and eights of blocks, for which Linux has one function in each set; the last of a
    // key's derivation, which is not measured, is shorter.
    const unsigned int most = cipher->vectors == SSE ? 256 : 512;
    while (len) {
        unsigned int now = len < most ? len : most;

        if (cipher->vectors == AVX512VL)
            chacha_8block_xor_avx512vl(state, data, data, now, cipher->rounds);
        else if (cipher->vectors == AVX2)
            chacha_8block_xor_avx2(state, data, data, now, cipher->rounds);
        else
            chacha_4block_xor_ssse3(state, data, data, now, cipher->rounds);
        state[12] += most / 64;
        data += now;
        len -= now;
    }
}

static void linux_new(struct linux_cipher *cipher, const u8 *key, int rounds, enum vectors vectors)
{
    static const u8 nonce[32] = {1};
    u8 derived[KEY + 2 * BLOCK + NH_KEY] = {0};

    memcpy(cipher->key, key, KEY);
    cipher->rounds = rounds;
    cipher->vectors = vectors;
    xchacha(cipher, nonce, derived, sizeof(derived));
    aesni_set_key(cipher->aes, derived, KEY);
    poly1305_core_setkey(&cipher->header, derived + KEY);
    poly1305_core_setkey(&cipher->message, derived + KEY + BLOCK);
    memcpy(cipher->nh, derived + KEY + 2 * BLOCK, NH_KEY);
}

static u128 hash_header(const struct linux_cipher *cipher, const u8 tweak[TWEAK], size_t bulk)
{
    struct poly1305_state state;
    u64 bits[2] = {bulk * 8, 0};
    u128 hash;

    poly1305_core_init(&state);
    poly1305_core_blocks(&state, &cipher->header, bits, 1, 1);
    poly1305_core_blocks(&state, &cipher->header, tweak, TWEAK / BLOCK, 1);
    poly1305_core_emit(&state, NULL, &hash);
    return hash;
}

static u128 hash_message(const struct linux_cipher *cipher, const u8 *data, size_t bulk)
{
    struct poly1305_state state;
    u64 nh[NH_HASH / 8];
    u128 hash;

    poly1305_core_init(&state);
    while (bulk) {
        size_t now = bulk < NH_MESSAGE ? bulk : NH_MESSAGE;

        if (cipher->vectors == SSE)
            nh_sse2(cipher->nh, data, now, nh);
        else
            nh_avx2(cipher->nh, data, now, nh);
        poly1305_core_blocks(&state, &cipher->message, nh, NH_HASH / BLOCK, 1);
        data += now;
        bulk -= now;
    }
    poly1305_core_emit(&state, NULL, &hash);
    return hash;
}

// dm-crypt's `plain64`.
static void linux_sector(const struct linux_cipher *cipher, u64 number, u8 *data, size_t size, bool encrypt)
{
    const size_t bulk = size - BLOCK;
    _Alignas(16) u8 iv[32] = {[16] = 1};
    u8 tweak[TWEAK] = {0};
    u128 header, right;

    memcpy(tweak, &number, sizeof(number));
    header = hash_header(cipher, tweak, bulk);
    memcpy(&right, data + bulk, BLOCK);
    right += header + hash_message(cipher, data, bulk);
    memcpy(iv, &right, BLOCK);
    if (encrypt)
        aesni_enc(cipher->aes, iv, iv);
    // The whole sector, as Linux does: whole blocks are quicker, and the last 16 bytes are overwritten below.
    xchacha(cipher, iv, data, size);
    if (!encrypt)
        aesni_dec(cipher->aes, iv, iv);
    memcpy(&right, iv, BLOCK);
    right -= header + hash_message(cipher, data, bulk);
    memcpy(data + bulk, &right, BLOCK);
}

// Someone who takes part; `linux_cipher` or `ours` is what it works with.
struct contender {
    char name[64];
    struct linux_cipher linux_cipher;
    sector_cipher *ours;
    size_t run;
    long passes;
};

static void must(int result, const char *what)
{
    if (result == 0)
        return;
    fprintf(stderr, "%s: %s\n", what, sector_cipher_error_text(result));
    exit(1);
}

static void one_pass(const struct contender *who, u8 *data, size_t size, u64 first, bool encrypt)
{
    size_t all = SECTORS * size, step = who->ours ? who->run * size : size;

    for (size_t at = 0; at < all; at += step) {
        u64 number = first + at / 512;

        if (!who->ours)
            linux_sector(&who->linux_cipher, number, data + at, size, encrypt);
        else if (encrypt)
            must(sector_cipher_encrypt(who->ours, number, data + at, step), who->name);
        else
            must(sector_cipher_decrypt(who->ours, number, data + at, step), who->name);
    }
}

static size_t gather(struct contender *who, const u8 *key, int rounds, unsigned int size)
{
    static const size_t runs[] = {1, SECTORS};
    // Slowest first.
    static const char *const backends[] = {"aes-ni", "vaes256", "vaes512"};
    char spec[64];
    size_t n = 0;

    __builtin_cpu_init();
    for (enum vectors vectors = SSE; vectors < VECTORS; vectors++) {
        // What Linux asks for; compare.py has asked for the others.
        if (vectors == AVX512VL && !(__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw")))
            continue;
        snprintf(who[n].name, sizeof(who[n].name), "Linux, %s", vectors_name[vectors]);
        who[n].run = 1;
        linux_new(&who[n++].linux_cipher, key, rounds, vectors);
    }
    snprintf(spec, sizeof(spec), "xchacha%d,aes-adiantum-plain64", rounds);
    for (size_t i = 0; i < sizeof(backends) / sizeof(*backends); i++) {
        if (sector_cipher_backend_is_supported(backends[i]) != 1)
            continue;
        for (size_t k = 0; k < sizeof(runs) / sizeof(*runs); k++) {
            if (runs[k] == 1)
                snprintf(who[n].name, sizeof(who[n].name), "%s, one per call", backends[i]);
            else
                snprintf(who[n].name, sizeof(who[n].name), "%s, runs of %zu", backends[i], runs[k]);
            must(sector_cipher_new(&who[n].ours, spec, size, false, key, KEY, backends[i]), who[n].name);
            who[n++].run = runs[k];
        }
    }
    return n;
}

static void release(struct contender *who, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sector_cipher_free(who[i].ours);
    memset(who, 0, n * sizeof(*who));
}

static u64 random_state = 0x9e3779b97f4a7c15;

static void fill(u8 *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        random_state ^= random_state << 13;
        random_state ^= random_state >> 7;
        random_state ^= random_state << 17;
        data[i] = random_state >> 32;
    }
}

// All against the portable back-end of ours, both ways, and what was there before.
static void check(struct contender *who)
{
    static _Alignas(4096) u8 plain[SECTORS * LONGEST], wanted[SECTORS * LONGEST], got[SECTORS * LONGEST];
    static const u64 firsts[] = {0, 8, 0xfffffffffff8, 0xfffffffffffff000};
    int keys = 0;

    for (int rounds = 12; rounds <= 20; rounds += 8) {
        for (unsigned int size = 512; size <= LONGEST; size *= 2) {
            for (size_t f = 0; f < sizeof(firsts) / sizeof(*firsts); f++, keys++) {
                size_t len = SECTORS * size, n;
                char spec[64];
                u8 key[KEY];
                sector_cipher *reference;

                fill(key, KEY);
                fill(plain, len);
                // Words that are all ones carry furthest.
                if (f == 1)
                    memset(plain, 0xff, len);
                snprintf(spec, sizeof(spec), "xchacha%d,aes-adiantum-plain64", rounds);
                must(sector_cipher_new(&reference, spec, size, false, key, KEY, "portable"), spec);
                must(sector_cipher_encrypt_to(reference, firsts[f], plain, wanted, len), spec);
                sector_cipher_free(reference);
                n = gather(who, key, rounds, size);
                for (size_t i = 0; i < n; i++) {
                    memcpy(got, plain, len);
                    one_pass(&who[i], got, size, firsts[f], true);
                    if (memcmp(got, wanted, len) != 0) {
                        fprintf(stderr, "%s, %u bytes: encrypts %s otherwise\n", spec, size, who[i].name);
                        exit(1);
                    }
                    one_pass(&who[i], got, size, firsts[f], false);
                    if (memcmp(got, plain, len) != 0) {
                        fprintf(stderr, "%s, %u bytes: decrypts %s otherwise\n", spec, size, who[i].name);
                        exit(1);
                    }
                }
                release(who, n);
            }
        }
    }
    printf("agree on %d keys\n", keys);
}

static double cpu_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static double seconds(const struct contender *who, u8 *data, size_t size, long passes)
{
    double start = cpu_seconds();

    for (long i = 0; i < passes; i++)
        one_pass(who, data, size, 0, true);
    return cpu_seconds() - start;
}

// A line for each contender and round: XChaCha's rounds, bytes of a sector, round, GB/s, name.
static void measure(struct contender *who, long turns, double slice)
{
    static _Alignas(4096) u8 data[SECTORS * LONGEST];

    fill(data, sizeof(data));
    for (int rounds = 12; rounds <= 20; rounds += 8) {
        for (unsigned int size = 512; size <= LONGEST; size *= 8) {
            u8 key[KEY];
            size_t n;

            fill(key, KEY);
            n = gather(who, key, rounds, size);
            for (size_t i = 0; i < n; i++) {
                // As many passes as fill a slice, of the quickest of some.
                double least = 1;

                for (int k = 0; k < 10; k++) {
                    double time = seconds(&who[i], data, size, 1);

                    if (time < least)
                        least = time;
                }
                who[i].passes = (long)(slice / least) + 1;
            }
            for (long turn = 0; turn < turns; turn++) {
                // The order moves on, and turns around, so that nobody is always behind the same.
                for (size_t k = 0; k < n; k++) {
                    const struct contender *now = &who[turn % 2 ? (turn + n - k) % n : (turn + k) % n];
                    double time = seconds(now, data, size, now->passes);

                    printf("%d %u %ld %.4f %s\n", rounds, size, turn,
                           (double)now->passes * SECTORS * size / time / 1e9, now->name);
                }
            }
            release(who, n);
        }
    }
}

int main(int argc, char **argv)
{
    struct contender *who = aligned_alloc(16, CONTENDERS * sizeof(*who));

    if (!who) {
        perror("adiantum");
        return 1;
    }
    memset(who, 0, CONTENDERS * sizeof(*who));
    if (argc == 2 && strcmp(argv[1], "check") == 0) {
        check(who);
    } else if (argc == 4 && strcmp(argv[1], "time") == 0) {
        measure(who, atol(argv[2]), atof(argv[3]) / 1e3);
    } else {
        fprintf(stderr, "usage: adiantum check | adiantum time ROUNDS MILLISECONDS\n");
        return 2;
    }
    free(who);
    return 0;
}
