/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the AES driver for x86 asks of the CPU and User Mode Linux has no answer for: the host
 * saves all registers that its CPU has.
 */
#include <linux/types.h>
#include <asm/cpufeature.h>
#include <asm/cpu_device_id.h>
#include <asm/fpu/api.h>

#define cpu_has_xfeatures(wanted, name) true
#define has_cpu_of_aesni_cpu_id boot_cpu_has(X86_FEATURE_AES)
#define x86_match_cpu(list) has_cpu_of_##list
