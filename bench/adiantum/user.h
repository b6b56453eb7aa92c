// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What the kernel's assembly and its Poly1305 expect of its headers, for user space: compare.py has the
// compiler read this first, and puts empty files in place of the headers that it stands for.

#ifdef __ASSEMBLER__

#define SYM_FUNC_START(name) \
    .globl name;             \
    .type name, @function;   \
    .balign 16;              \
    name:
#define SYM_FUNC_START_LOCAL(name) \
    .type name, @function;         \
    .balign 16;                    \
    name:
#define SYM_TYPED_FUNC_START(name) SYM_FUNC_START(name)
#define SYM_FUNC_ALIAS_LOCAL(name, of) .set name, of
#define SYM_FUNC_END(name) .size name, .- name
// Without what guards against speculation, which a kernel takes out on a CPU that does not need it.
#define RET ret
#define FRAME_BEGIN
#define FRAME_END
#define FRAME_OFFSET 0

.section .note.GNU-stack, "", @progbits
.text

#else

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;
typedef unsigned __int128 u128;

#define likely(x) __builtin_expect(!!(x), 1)
#define EXPORT_SYMBOL(name) _Static_assert(1, "")
// Asked in crypto/poly1305.h, by calls that nobody here makes.
#define IS_ENABLED(option) 0
// How many powers of the key the structures of crypto/poly1305.h have room for; nobody here has one of these.
#define CONFIG_CRYPTO_LIB_POLY1305_RSIZE 9

static inline u64 get_unaligned_le64(const void *from)
{
    u64 value;

    memcpy(&value, from, sizeof(value));
    return value;
}

static inline u32 get_unaligned_le32(const void *from)
{
    u32 value;

    memcpy(&value, from, sizeof(value));
    return value;
}

static inline void put_unaligned_le64(u64 value, void *to)
{
    memcpy(to, &value, sizeof(value));
}

#endif
