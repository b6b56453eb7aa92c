// SPDX-License-Identifier: GPL-2.0
/* Choice of instruction set, keys, and the one place that enters the FPU. */
#include <linux/module.h>
#include <linux/preempt.h>
#include <asm/cpufeature.h>
#include <asm/fpu/api.h>
#ifndef CONFIG_UML
#include <asm/fpu/xstate.h>
#endif

#include "xtent.h"

static char *isa = "auto";
module_param(isa, charp, 0444);
MODULE_PARM_DESC(isa, "Instruction set of XTS: auto, vaes512, vaes256, aesni, or none for the crypto API");

static const struct xt_xts_backend *chosen;

#ifdef CONFIG_UML
/* Runs as a process: the host saves registers, whatever they are. */
static bool has_state(bool avx512) { return true; }
#else
static bool has_state(bool avx512)
{
	u64 wanted = XFEATURE_MASK_SSE | XFEATURE_MASK_YMM;

	if (avx512)
		wanted |= XFEATURE_MASK_AVX512;
	return cpu_has_xfeatures(wanted, NULL);
}
#endif

static bool has_aesni(void)
{
	return boot_cpu_has(X86_FEATURE_AES) && boot_cpu_has(X86_FEATURE_PCLMULQDQ) &&
	       boot_cpu_has(X86_FEATURE_XMM4_1);
}

static bool has_vaes256(void)
{
	return has_aesni() && boot_cpu_has(X86_FEATURE_AVX2) && boot_cpu_has(X86_FEATURE_VAES) &&
	       boot_cpu_has(X86_FEATURE_VPCLMULQDQ) && has_state(false);
}

static bool has_vaes512(void)
{
	return has_vaes256() && boot_cpu_has(X86_FEATURE_AVX512F) &&
	       boot_cpu_has(X86_FEATURE_AVX512BW) && boot_cpu_has(X86_FEATURE_AVX512DQ) &&
	       boot_cpu_has(X86_FEATURE_AVX512VL) && has_state(true);
}

/* The widest first. */
static const struct xt_xts_backend backends[] = {
	{ "vaes512", has_vaes512, xt_xts_encrypt_vaes512, xt_xts_decrypt_vaes512 },
	{ "vaes256", has_vaes256, xt_xts_encrypt_vaes256, xt_xts_decrypt_vaes256 },
	{ "aesni", has_aesni, xt_xts_encrypt_aesni, xt_xts_decrypt_aesni },
};

const struct xt_xts_backend *xt_xts_choose(void)
{
	return chosen;
}

/*
 * In a hard interrupt, or with interrupts off, the FPU may be in use, or the
 * time there is short.
 */
bool xt_xts_usable_here(void)
{
	return !in_hardirq() && !irqs_disabled() && irq_fpu_usable();
}

static void xt_simd_begin(void)
{
	WARN_ON_ONCE(!xt_xts_usable_here());
	kernel_fpu_begin();
}

static void xt_simd_end(void)
{
	kernel_fpu_end();
}

/*
 * Masks are tweaks times powers of x, as telling as those, and where registers do not
 * hold them all the compiler keeps them in the back-end's frame. This one's covers it.
 */
static noinline void wipe_stack(void)
{
	u8 below[XT_STACK_WIPED];

	memzero_explicit(below, sizeof(below));
}

void xt_xts_crypt(const struct xt_xts *xts, bool encrypt, const struct xt_batch *batch,
		  unsigned int sector_size)
{
	xt_simd_begin();
	if (encrypt)
		xts->backend->encrypt(xts, batch, sector_size);
	else
		xts->backend->decrypt(xts, batch, sector_size);
	wipe_stack();
	xt_simd_end();
}

int xt_xts_set_key(struct xt_xts *xts, const u8 *key, unsigned int key_size)
{
	int r;

	if (key_size % 2)
		return -EINVAL;
	r = aes_expandkey(&xts->data, key, key_size / 2);
	return r ?: aes_expandkey(&xts->tweak, key + key_size / 2, key_size / 2);
}

/*
 * Tests every instruction set that this CPU has, and chooses one. A fault in
 * one of them stops the module: no data was written with it yet.
 */
int xt_xts_init(void)
{
	bool automatic = !strcmp(isa, "auto");
	unsigned int i;
	int r;

	for (i = 0; i < ARRAY_SIZE(backends); i++) {
		const struct xt_xts_backend *backend = &backends[i];

		if (!backend->usable()) {
			if (!strcmp(isa, backend->name)) {
				DMERR("this CPU has no %s", isa);
				return -ENODEV;
			}
			continue;
		}
		r = xt_xts_selftest(backend);
		if (r) {
			DMERR("self-test of XTS on %s failed: %d", backend->name, r);
			return r;
		}
		if (!chosen && (automatic || !strcmp(isa, backend->name)))
			chosen = backend;
	}
	if (!chosen && !automatic && strcmp(isa, "none")) {
		DMERR("isa=%s is unknown: auto, vaes512, vaes256, aesni or none", isa);
		return -EINVAL;
	}
	DMINFO("XTS on %s", chosen ? chosen->name : "the crypto API");
	return 0;
}
