// Disk sector ciphers over runs of consecutive sectors, byte for byte those of
// dm-crypt. Made from src/lib.rs by cbindgen: change that file instead.

#ifndef SECTOR_CIPHER_H
#define SECTOR_CIPHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Version of this header. A program works with every later library whose file has the same number behind
// its name, `libsector_cipher.so.0`.
#define SECTOR_CIPHER_VERSION_MAJOR 0

// See `SECTOR_CIPHER_VERSION_MAJOR`.
#define SECTOR_CIPHER_VERSION_MINOR 1

// See `SECTOR_CIPHER_VERSION_MAJOR`.
#define SECTOR_CIPHER_VERSION_PATCH 0

// What a call came to: zero, or a negative number. After an error nothing has
// been changed.
typedef enum sector_cipher_result {
  // Done.
  SECTOR_CIPHER_RESULT_OK = 0,
  // A pointer is null that must not be.
  SECTOR_CIPHER_RESULT_NULL = -1,
  // No cipher has this name.
  SECTOR_CIPHER_RESULT_UNKNOWN_CIPHER = -2,
  // Sectors have 512, 1024, 2048 or 4096 bytes.
  SECTOR_CIPHER_RESULT_SECTOR_SIZE = -3,
  // The cipher takes no key of this length.
  SECTOR_CIPHER_RESULT_KEY_LENGTH = -4,
  // No back-end has this name.
  SECTOR_CIPHER_RESULT_UNKNOWN_BACKEND = -5,
  // This CPU lacks what the back-end needs.
  SECTOR_CIPHER_RESULT_UNSUPPORTED_BACKEND = -6,
  // The system gives no memory for the key.
  SECTOR_CIPHER_RESULT_NO_MEMORY = -7,
  // The length is not one of whole sectors.
  SECTOR_CIPHER_RESULT_LENGTH = -8,
  // The first sector number is not at the start of a sector.
  SECTOR_CIPHER_RESULT_FIRST_SECTOR = -9,
  // Source and destination overlap without being the same, or two segments do.
  SECTOR_CIPHER_RESULT_OVERLAP = -10,
  // The run goes beyond sector 2^64 - 1.
  SECTOR_CIPHER_RESULT_BEYOND_LAST = -11,
} sector_cipher_result;

// A keyed cipher with a sector size. Its key schedule is in pages of its own,
// which are locked against swap (as far as the limit on locked memory allows)
// and left out of core dumps, and is wiped by `sector_cipher_free`.
//
// Several threads may encrypt and decrypt with it at the same time. Nothing
// else may go on during `sector_cipher_rekey` and `sector_cipher_free`.
typedef struct sector_cipher sector_cipher;

// One of several runs that are handed over together.
typedef struct sector_cipher_segment {
  // Number of the first sector, in 512-byte units whatever the sector size.
  uint64_t first;
  // Whole sectors, in place.
  uint8_t *data;
  // How many bytes.
  size_t len;
} sector_cipher_segment;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Makes a cipher and puts it at `*cipher`; after an error there is NULL.
//
// `name` is dm-crypt's, such as "aes-xts-plain64". `large_iv` says that IVs
// count whole sectors (dm-crypt's `iv_large_sectors`) instead of 512-byte
// units. `backend` is "portable", "aes-ni" and so on, or NULL for the fastest
// one. The key is not needed afterwards: wipe it.
//
// "capi:xcb(aes)-plain64" is broken (ePrint 2024/1554) and not refused, because
// there may be volumes that have it: do not make new ones.
//
// # Safety
// `cipher` is writable, `name` and, if not null, `backend` are strings with a
// zero at the end, and `key` is readable for `key_len` bytes.
enum sector_cipher_result sector_cipher_new(struct sector_cipher **cipher,
                                            const char *name,
                                            uint32_t sector_size,
                                            bool large_iv,
                                            const uint8_t *key,
                                            size_t key_len,
                                            const char *backend);

// Replaces the key, by one of the same length or of another that the cipher
// takes. The old one is wiped; after an error it is still in use.
//
// # Safety
// `cipher` is from `sector_cipher_new`, and no other thread uses it; `key` is
// readable for `key_len` bytes.
enum sector_cipher_result sector_cipher_rekey(struct sector_cipher *cipher,
                                              const uint8_t *key,
                                              size_t key_len);

// The name of the back-end in use; NULL for NULL. It goes with the cipher.
//
// # Safety
// `cipher` is null or from `sector_cipher_new`.
const char *sector_cipher_backend(const struct sector_cipher *cipher);

// Wipes and frees a cipher. NULL is left alone.
//
// # Safety
// `cipher` is null or from `sector_cipher_new`, and not used again.
void sector_cipher_free(struct sector_cipher *cipher);

// Overwrites what calls with this cipher from the same function, or from
// functions that it called, have left on the stack, some of which depends on
// the key. Once after a request is enough.
//
// # Safety
// `cipher` is NULL or from `sector_cipher_new`.
void sector_cipher_wipe_stack(const struct sector_cipher *cipher);

// Encrypts a run of sectors in place. `first` is the number of its first
// sector in 512-byte units, whatever the sector size; `len` is in bytes.
//
// # Safety
// `cipher` is from `sector_cipher_new`; `data` is readable and writable for
// `len` bytes, and no other thread uses them.
enum sector_cipher_result sector_cipher_encrypt(const struct sector_cipher *cipher,
                                                uint64_t first,
                                                uint8_t *data,
                                                size_t len);

// Decrypts a run of sectors in place.
//
// # Safety
// As for `sector_cipher_encrypt`.
enum sector_cipher_result sector_cipher_decrypt(const struct sector_cipher *cipher,
                                                uint64_t first,
                                                uint8_t *data,
                                                size_t len);

// Encrypts a run of sectors from `source` to `dest`, which are the same or do
// not overlap.
//
// # Safety
// `cipher` is from `sector_cipher_new`; `source` is readable and `dest`
// writable for `len` bytes, and no other thread writes to the former or uses
// the latter.
enum sector_cipher_result sector_cipher_encrypt_to(const struct sector_cipher *cipher,
                                                   uint64_t first,
                                                   const uint8_t *source,
                                                   uint8_t *dest,
                                                   size_t len);

// Decrypts a run of sectors from `source` to `dest`.
//
// # Safety
// As for `sector_cipher_encrypt_to`.
enum sector_cipher_result sector_cipher_decrypt_to(const struct sector_cipher *cipher,
                                                   uint64_t first,
                                                   const uint8_t *source,
                                                   uint8_t *dest,
                                                   size_t len);

// Encrypts several runs together, in place: scattered single sectors are then
// as fast as one run of as many. All are checked before the first is changed; segments that
// overlap are refused.
//
// # Safety
// `cipher` is from `sector_cipher_new`; `segments` is readable for `count` of
// them, and no other thread writes to it; what they name is readable and
// writable, and no other thread uses it.
enum sector_cipher_result sector_cipher_encrypt_segments(const struct sector_cipher *cipher,
                                                         const struct sector_cipher_segment *segments,
                                                         size_t count);

// Decrypts several runs together, in place.
//
// # Safety
// As for `sector_cipher_encrypt_segments`.
enum sector_cipher_result sector_cipher_decrypt_segments(const struct sector_cipher *cipher,
                                                         const struct sector_cipher_segment *segments,
                                                         size_t count);

// What a result means, in English. Any number will do. Not to be freed.
const char *sector_cipher_error_text(int result);

// The version of the library in use, such as "0.1.0"; not to be freed.
const char *sector_cipher_version(void);

// Name number `i`, from 0, of the ciphers that there are; NULL behind the last. Not to be
// freed.
const char *sector_cipher_name(size_t i);

// Key length number `i`, from 0, in bytes, of those that a cipher takes, ascending; 0
// behind the last, and where no cipher has this name.
//
// # Safety
// `name` is NULL or a string with a zero at the end.
size_t sector_cipher_key_length(const char *name, size_t i);

// Whether an attack on a cipher is known that nobody who makes a new volume should accept:
// 1 or 0, or a negative `sector_cipher_result` where no cipher has this name.
//
// # Safety
// `name` is NULL or a string with a zero at the end.
int sector_cipher_is_broken(const char *name);

// Name number `i`, from 0, of all back-ends, slowest first, whether or not this CPU has
// them; NULL behind the last. Not to be freed.
const char *sector_cipher_backend_name(size_t i);

// Whether this CPU has a back-end: 1 or 0, or a negative `sector_cipher_result` where no
// back-end has this name.
//
// # Safety
// `backend` is NULL or a string with a zero at the end.
int sector_cipher_backend_is_supported(const char *backend);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SECTOR_CIPHER_H */
