// Encrypts a buffer of sectors, checks the first of them against a known answer
// and decrypts it again, in every form of call.
//
//   cc -I. examples/encrypt.c libsector_cipher.a -lpthread -ldl -lm -lgcc_s

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sector_cipher.h"

enum { SECTOR = 512, SECTORS = 70, LEN = SECTORS * SECTOR };

static void check(int result, const char *what) {
    if (result != 0) {
        fprintf(stderr, "%s: %s\n", what, sector_cipher_error_text(result));
        exit(1);
    }
}

static void expect(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "wrong: %s\n", what);
        exit(1);
    }
}

int main(int argc, char **argv) {
    // IEEE 1619-2007, annex B, vector 1: all zeros.
    static const uint8_t known[32] = {
        0x91, 0x7c, 0xf6, 0x9e, 0xbd, 0x68, 0xb2, 0xec, 0x9b, 0x9f, 0xe9,
        0xa3, 0xea, 0xdd, 0xa6, 0x92, 0xcd, 0x43, 0xd2, 0xf5, 0x95, 0x98,
        0xed, 0x85, 0x8c, 0x02, 0xc2, 0x65, 0x2f, 0xbf, 0x92, 0x2e,
    };
    static uint8_t plain[LEN], data[LEN], copy[LEN];
    const char *backend = argc > 1 ? argv[1] : NULL;
    uint8_t key[64] = {0};
    sector_cipher *cipher;

    check(sector_cipher_new(&cipher, "aes-xts-plain64", SECTOR, false, key, 32, backend),
          "making the cipher");
    printf("back-end %s\n", sector_cipher_backend(cipher));

    check(sector_cipher_encrypt(cipher, 0, data, LEN), "encrypting");
    expect(memcmp(data, known, sizeof known) == 0, "known answer");
    check(sector_cipher_encrypt_to(cipher, 0, plain, copy, LEN), "encrypting to");
    expect(memcmp(data, copy, LEN) == 0, "from source to destination");
    check(sector_cipher_encrypt_to(cipher, 0, plain, plain, LEN), "the same buffer");
    check(sector_cipher_decrypt_to(cipher, 0, plain, plain, LEN), "the same buffer");
    check(sector_cipher_decrypt(cipher, 0, copy, LEN), "decrypting");
    expect(memcmp(copy, plain, LEN) == 0, "back again");

    // Every sector apart, the last first; and a segment of nothing.
    sector_cipher_segment segments[SECTORS + 1] = {{0, NULL, 0}};
    for (size_t i = 0; i < SECTORS; i++) {
        size_t sector = SECTORS - 1 - i;
        segments[i + 1] =
            (sector_cipher_segment){sector, copy + sector * SECTOR, SECTOR};
    }
    check(sector_cipher_encrypt_segments(cipher, segments, SECTORS + 1), "segments");
    expect(memcmp(data, copy, LEN) == 0, "segments");
    check(sector_cipher_decrypt_segments(cipher, segments, SECTORS + 1), "segments");
    expect(memcmp(copy, plain, LEN) == 0, "segments and back");

    // Another key, of another length, and the first one once more.
    key[0] = 1;
    check(sector_cipher_rekey(cipher, key, 64), "another key");
    check(sector_cipher_encrypt(cipher, 0, copy, SECTOR), "with it");
    expect(memcmp(copy, known, sizeof known) != 0, "another key");
    check(sector_cipher_decrypt(cipher, 0, copy, SECTOR), "with it");
    key[0] = 0;
    check(sector_cipher_rekey(cipher, key, 32), "the first key");
    sector_cipher_wipe_stack(cipher);
    sector_cipher_wipe_stack(NULL);

    // Nothing of this changes anything.
    sector_cipher *none = cipher;
    expect(sector_cipher_encrypt(cipher, 0, copy, 511) == SECTOR_CIPHER_RESULT_LENGTH, "length");
    expect(sector_cipher_encrypt(cipher, 0, NULL, 512) == SECTOR_CIPHER_RESULT_NULL, "data");
    expect(sector_cipher_encrypt(NULL, 0, copy, 512) == SECTOR_CIPHER_RESULT_NULL, "cipher");
    expect(sector_cipher_encrypt(cipher, 0, NULL, 0) == 0, "no data");
    expect(sector_cipher_encrypt_segments(cipher, NULL, 0) == 0, "no segments");
    expect(sector_cipher_encrypt_segments(cipher, NULL, 1) == SECTOR_CIPHER_RESULT_NULL,
           "segments");
    segments[SECTORS].len = 100;
    expect(sector_cipher_encrypt_segments(cipher, segments, SECTORS + 1) ==
               SECTOR_CIPHER_RESULT_LENGTH,
           "a segment's length");
    expect(sector_cipher_encrypt_to(cipher, 0, copy, copy + 512, 1024) ==
               SECTOR_CIPHER_RESULT_OVERLAP,
           "overlap");
    expect(sector_cipher_rekey(cipher, key, 33) == SECTOR_CIPHER_RESULT_KEY_LENGTH, "key");
    expect(memcmp(copy, plain, LEN) == 0, "unchanged");
    expect(sector_cipher_new(&none, "aes-xts-plain65", 512, false, key, 32, NULL) ==
               SECTOR_CIPHER_RESULT_UNKNOWN_CIPHER,
           "name");
    expect(none == NULL, "no cipher");
    expect(sector_cipher_new(&none, NULL, 512, false, key, 32, NULL) ==
               SECTOR_CIPHER_RESULT_NULL,
           "no name");
    expect(sector_cipher_new(NULL, "aes-xts-plain64", 512, false, key, 32, NULL) ==
               SECTOR_CIPHER_RESULT_NULL,
           "no place");
    expect(sector_cipher_new(&none, "aes-xts-plain64", 513, false, key, 32, NULL) ==
               SECTOR_CIPHER_RESULT_SECTOR_SIZE,
           "sector size");
    expect(sector_cipher_new(&none, "aes-xts-plain64", 512, false, key, 16, NULL) ==
               SECTOR_CIPHER_RESULT_KEY_LENGTH,
           "key length");
    expect(sector_cipher_new(&none, "aes-xts-plain64", 512, false, NULL, 32, NULL) ==
               SECTOR_CIPHER_RESULT_NULL,
           "no key");
    expect(sector_cipher_new(&none, "aes-xts-plain64", 512, false, key, 32, "abacus") ==
               SECTOR_CIPHER_RESULT_UNKNOWN_BACKEND,
           "back-end");
    // Segments that share a sector.
    sector_cipher_segment twice[] = {{.first = 0, .data = copy, .len = 1024},
                                     {.first = 8, .data = copy + 512, .len = 512}};
    expect(sector_cipher_encrypt_segments(cipher, twice, 2) == SECTOR_CIPHER_RESULT_OVERLAP,
           "overlapping segments");
    expect(sector_cipher_encrypt(cipher, UINT64_MAX, copy, 1024) ==
               SECTOR_CIPHER_RESULT_BEYOND_LAST,
           "beyond the last sector");
    sector_cipher_free(cipher);
    sector_cipher_free(NULL);

    // What there is.
    size_t ciphers = 0;
    for (const char *name; (name = sector_cipher_name(ciphers)) != NULL; ciphers++) {
        expect(sector_cipher_is_broken(name) == (strstr(name, "xcb") != NULL), "broken");
        for (size_t i = 0, len; (len = sector_cipher_key_length(name, i)) != 0; i++) {
            check(sector_cipher_new(&cipher, name, 512, false, key, len, NULL), name);
            sector_cipher_free(cipher);
        }
    }
    expect(ciphers >= 15, "names");
    expect(sector_cipher_backend_is_supported(sector_cipher_backend_name(0)) == 1, "portable");
    expect(strncmp(sector_cipher_version(), "0.", 2) == 0 && SECTOR_CIPHER_VERSION_MAJOR == 0,
           "version");

    // Sectors of 4096 bytes begin at multiples of eight.
    check(sector_cipher_new(&cipher, "aes-xts-plain64", 4096, true, key, 32, backend),
          "large sectors");
    expect(sector_cipher_encrypt(cipher, 4, copy, 4096) == SECTOR_CIPHER_RESULT_FIRST_SECTOR,
           "first sector");
    check(sector_cipher_encrypt(cipher, 8, copy, 4096), "large sectors");
    sector_cipher_free(cipher);

    puts("all is well");
    return 0;
}
