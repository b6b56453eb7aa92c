/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the AES driver of Linux 6.12 and 7 for x86 asks of the CPU and User Mode Linux has no answer
 * for: the host saves all registers that its CPU has.
 */
#include <linux/module.h>
#include <linux/types.h>
#include <asm/cpufeature.h>
#include <asm/cpu_device_id.h>
#include <asm/fpu/api.h>
/* Comes with others' headers in 6.12, not in 6.1. */
#include <crypto/gf128mul.h>

/*
 * only_aesni=1 has it be on a CPU without VAES. By its name the benchmark could ask for a narrower
 * driver as well, but what has no name in its table takes the widest that there is.
 */
static bool only_aesni;
module_param(only_aesni, bool, 0444);
#define cpu_has_xfeatures(wanted, name) (!only_aesni)

/* Its list of CPUs, all with AES; the list of those that should rather not use ZMM, left empty. */
#define has_cpu_of_aesni_cpu_id boot_cpu_has(X86_FEATURE_AES)
#define has_cpu_of_zmm_exclusion_list false
#define x86_match_cpu(list) has_cpu_of_##list
#undef X86_MATCH_VFM
#define X86_MATCH_VFM(model, data) { }
