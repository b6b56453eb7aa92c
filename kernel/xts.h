/* SPDX-License-Identifier: GPL-2.0 */
/*
 * XTS-AES (IEEE 1619) on the CPU, synchronously, over batches of sectors:
 * their tweaks are encrypted together, and eight vectors of blocks are under
 * way at any time.
 */
#ifndef XTENT_XTS_H
#define XTENT_XTS_H

#include <linux/jump_label.h>
#include <linux/types.h>
#include <crypto/aes.h>

/* Sectors in a batch. */
#define XT_BATCH 32

/* Sectors anywhere in memory, each in one piece. */
struct xt_batch {
	unsigned int count;
	/* IVs are 64-bit numbers: little endian in front, or big endian behind. */
	bool big_endian;
	u64 iv[XT_BATCH];
	const u8 *src[XT_BATCH];
	u8 *dst[XT_BATCH];	/* may be src */
};

struct xt_xts_backend;

struct xt_xts {
	struct crypto_aes_ctx data;
	struct crypto_aes_ctx tweak;
	const struct xt_xts_backend *backend;
};

struct xt_xts_backend {
	const char *name;
	bool (*usable)(void);
	/* Only between xt_simd_begin() and xt_simd_end(). */
	void (*encrypt)(const struct xt_xts *xts, const struct xt_batch *batch,
			unsigned int sector_size);
	void (*decrypt)(const struct xt_xts *xts, const struct xt_batch *batch,
			unsigned int sector_size);
};

/* IV `i` of a batch, as bytes. */
static inline void xt_batch_iv(const struct xt_batch *batch, unsigned int i, u8 *iv)
{
	__le64 *words = (__le64 *)iv;

	words[0] = batch->big_endian ? 0 : cpu_to_le64(batch->iv[i]);
	words[1] = batch->big_endian ? (__force __le64)cpu_to_be64(batch->iv[i]) : 0;
}

#ifdef XT_SYNC_XTS

/* The instruction set that the module's parameter or the CPU decides on, or NULL. */
const struct xt_xts_backend *xt_xts_choose(void);
/* How long its XTS takes for so many bytes, by a measurement when the module was loaded. */
u64 xt_xts_ns(unsigned int bytes);
DECLARE_STATIC_KEY_FALSE(xt_xts_longer);
/* Whether it takes much longer than that says, since the CPU is emulated. */
static inline bool xt_xts_takes_longer(void)
{
	return static_branch_unlikely(&xt_xts_longer);
}
/* The most bytes in one section with the FPU, in which the kernel cannot be preempted. */
unsigned int xt_xts_section_bytes(void);
int xt_xts_set_key(struct xt_xts *xts, const u8 *key, unsigned int key_size);
bool xt_xts_usable_here(void);
void xt_xts_crypt(const struct xt_xts *xts, bool encrypt,
		  const struct xt_batch *batch, unsigned int sector_size);
int xt_xts_selftest(const struct xt_xts_backend *backend);
/* Nanoseconds for 4096 bytes in sectors of 512, at best; 0 if there is no memory to try. */
unsigned int xt_xts_measure(const struct xt_xts_backend *backend);
int xt_xts_init(void);

#define XT_DECLARE_XTS(isa)						       \
	void xt_xts_encrypt_##isa(const struct xt_xts *xts,		       \
				  const struct xt_batch *batch,		       \
				  unsigned int sector_size);		       \
	void xt_xts_decrypt_##isa(const struct xt_xts *xts,		       \
				  const struct xt_batch *batch,		       \
				  unsigned int sector_size)
XT_DECLARE_XTS(aesni);
XT_DECLARE_XTS(aesni_avx);
XT_DECLARE_XTS(aesni_products);
XT_DECLARE_XTS(vaes256);
XT_DECLARE_XTS(vaes512);

#else

static inline const struct xt_xts_backend *xt_xts_choose(void) { return NULL; }
static inline u64 xt_xts_ns(unsigned int bytes) { return 0; }
static inline bool xt_xts_takes_longer(void) { return false; }
static inline unsigned int xt_xts_section_bytes(void) { return 4096; }
static inline int xt_xts_set_key(struct xt_xts *xts, const u8 *key,
				 unsigned int key_size) { return -EOPNOTSUPP; }
static inline bool xt_xts_usable_here(void) { return false; }
static inline void xt_xts_crypt(const struct xt_xts *xts, bool encrypt,
				const struct xt_batch *batch,
				unsigned int sector_size) { }
static inline int xt_xts_init(void) { return 0; }

#endif

#endif
