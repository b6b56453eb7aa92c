/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the AES driver of Linux 6.12 for x86 asks of the CPU and User Mode Linux has no answer
 * for: the host saves all registers that its CPU has, and the benchmark asks for a
 * driver by its name, so that the order of preference does not matter.
 */
#include <linux/types.h>
#include <asm/cpufeature.h>
#include <asm/cpu_device_id.h>
#include <asm/fpu/api.h>
/* Comes with others' headers in 6.12, not in 6.1. */
#include <crypto/gf128mul.h>

#define cpu_has_xfeatures(wanted, name) true

/* Its list of CPUs, all with AES; the list of those that should rather not use ZMM, left empty. */
#define has_cpu_of_aesni_cpu_id boot_cpu_has(X86_FEATURE_AES)
#define has_cpu_of_zmm_exclusion_list false
#define x86_match_cpu(list) has_cpu_of_##list
#undef X86_MATCH_VFM
#define X86_MATCH_VFM(model, data) { }
