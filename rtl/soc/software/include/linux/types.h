/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The kernel's names for types, for what the kernel's module shares with this program. */
#ifndef SOC_LINUX_TYPES_H
#define SOC_LINUX_TYPES_H

#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t s64;
typedef uint64_t __le64;

#endif
