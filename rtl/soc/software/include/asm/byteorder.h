/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The CPU is little-endian. */
#ifndef SOC_ASM_BYTEORDER_H
#define SOC_ASM_BYTEORDER_H

#define le64_to_cpu(x) (x)
#define cpu_to_le64(x) (x)

#endif
