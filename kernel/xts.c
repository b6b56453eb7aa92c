// SPDX-License-Identifier: GPL-2.0
/* Choice of instruction set, keys, and the one place that enters the FPU. */
#include <linux/fips.h>
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
MODULE_PARM_DESC(isa, "Instruction set of XTS: auto, vaes512, vaes256, aesni_avx, aesni, or none for the crypto API");

/*
 * A section with the FPU keeps all others from the CPU: so long, but for 4096 bytes
 * at least, where the most part of the gain by several sectors at once is had, and no
 * more than makes no further difference. A CPU that has AES at all needs no longer for 4096 bytes
 * than SLOWEST_NS; an emulated one may, and nobody's deadlines are kept there.
 * Reads that complete in interrupts are counted there by what they took.
 */
#define SECTION_NS 16000
#define LEAST_BYTES 4096
#define MOST_BYTES 16384
#define SLOWEST_NS 8000
/* What is less than this was measured by a clock that hardly moves, and says nothing. */
#define FASTEST_NS 20

static const struct xt_xts_backend *chosen;
static unsigned int ns_per_4096 = SLOWEST_NS;
DEFINE_STATIC_KEY_FALSE(xt_xts_longer);
static unsigned int section_bytes = LEAST_BYTES;

#ifdef CONFIG_UML
/* Runs as a process: the host saves registers, whatever they are. */
static bool has_state(bool avx512) { return true; }
/* Its CPUs have no model. */
static bool slows_down_by_512(void) { return false; }
#else
/*
 * On these, vectors of 512 bits lower the clock of all who share the core. The kernel
 * avoids them there, and from 6.12 or so on says so with a flag.
 */
static bool slows_down_by_512(void)
{
	static const u8 models[] = {
		0x55,		/* Skylake-X, Cascade Lake, Cooper Lake */
		0x6a, 0x6c,	/* Ice Lake of servers */
		0x7d, 0x7e,	/* Ice Lake */
		0x9d,		/* Ice Lake, NNP-I */
		0x8c, 0x8d,	/* Tiger Lake */
	};

#ifdef X86_FEATURE_PREFER_YMM
	if (boot_cpu_has(X86_FEATURE_PREFER_YMM))
		return true;
#endif
	return boot_cpu_data.x86_vendor == X86_VENDOR_INTEL && boot_cpu_data.x86 == 6 &&
	       memchr(models, boot_cpu_data.x86_model, sizeof(models));
}

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

static bool has_aesni_avx(void)
{
	return has_aesni() && boot_cpu_has(X86_FEATURE_AVX) && has_state(false);
}

static bool has_vaes256(void)
{
	return has_aesni_avx() && boot_cpu_has(X86_FEATURE_AVX2) &&
	       boot_cpu_has(X86_FEATURE_VAES) && boot_cpu_has(X86_FEATURE_VPCLMULQDQ);
}

static bool has_vaes512(void)
{
	return has_vaes256() && boot_cpu_has(X86_FEATURE_AVX512F) &&
	       boot_cpu_has(X86_FEATURE_AVX512BW) && boot_cpu_has(X86_FEATURE_AVX512DQ) &&
	       boot_cpu_has(X86_FEATURE_AVX512VL) && has_state(true);
}

/* The widest first. Of two with one name, the faster: which that is the CPU's name does not tell. */
static const struct xt_xts_backend backends[] = {
	{ "vaes512", has_vaes512, xt_xts_encrypt_vaes512, xt_xts_decrypt_vaes512 },
	{ "vaes256", has_vaes256, xt_xts_encrypt_vaes256, xt_xts_decrypt_vaes256 },
	{ "aesni_avx", has_aesni_avx, xt_xts_encrypt_aesni_avx, xt_xts_decrypt_aesni_avx },
	{ "aesni_avx", has_aesni_avx, xt_xts_encrypt_aesni_products,
	  xt_xts_decrypt_aesni_products },
	{ "aesni", has_aesni, xt_xts_encrypt_aesni, xt_xts_decrypt_aesni },
};

const struct xt_xts_backend *xt_xts_choose(void)
{
	return chosen;
}

u64 xt_xts_ns(unsigned int bytes)
{
	return (u64)bytes * ns_per_4096 / 4096;
}

unsigned int xt_xts_section_bytes(void)
{
	return section_bytes;
}

static unsigned int measure(void)
{
	unsigned int ns = xt_xts_measure(chosen);

	if (ns < FASTEST_NS)
		return SLOWEST_NS;
	/* Below that what is said is near enough: reads take two thirds of the CPU at most. */
	if (ns > SLOWEST_NS + SLOWEST_NS / 4)
		static_branch_enable(&xt_xts_longer);
	ns_per_4096 = min(ns, SLOWEST_NS);
	/* There latency comes before all. */
	if (!IS_ENABLED(CONFIG_PREEMPT_RT))
		section_bytes = clamp(SECTION_NS / ns_per_4096 * LEAST_BYTES, LEAST_BYTES,
				      MOST_BYTES);
	return ns;
}

/* Where there is no memory to try, it is not. */
static bool is_faster(const struct xt_xts_backend *a, const struct xt_xts_backend *b)
{
	unsigned int ns = xt_xts_measure(a);

	return ns && ns < xt_xts_measure(b);
}

/* Whether nobody may want this one without asking for it by name. */
static bool is_for_all(const struct xt_xts_backend *backend)
{
	return backend->encrypt != xt_xts_encrypt_vaes512 || !slows_down_by_512();
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
 * Whoever knows a tweak and the data may change blocks at will, and masks are tweaks times powers
 * of x, as telling as those. A back-end has both in its frame; wipe_stack()'s own lies over it.
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
	unsigned int ns;
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
		if (!chosen && (automatic ? is_for_all(backend) : !strcmp(isa, backend->name)))
			chosen = backend;
		else if (chosen && !strcmp(chosen->name, backend->name) && is_faster(backend, chosen))
			chosen = backend;
	}
	if (!chosen && !automatic && strcmp(isa, "none")) {
		DMERR("isa=%s is unknown: auto, vaes512, vaes256, aesni_avx, aesni or none", isa);
		return -EINVAL;
	}
	if (chosen && fips_enabled) {
		DMINFO("FIPS mode: this module's own AES is not validated");
		chosen = NULL;
	}
	if (!chosen) {
		DMINFO("XTS on the crypto API");
		return 0;
	}
	ns = measure();
	DMINFO("XTS on %s%s, 4096 bytes in %u ns, %u bytes at a time", chosen->name,
	       chosen->encrypt == xt_xts_encrypt_aesni_products ? ", masks by products" : "",
	       ns, section_bytes);
	return 0;
}
