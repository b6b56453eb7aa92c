// SPDX-License-Identifier: GPL-2.0
/*
 * Has dm-xtent's engine path, and the kernel's software XTS, work as a program of its own, so
 * that every instruction can be counted: compiled by the kernel's makefiles for the papers'
 * boards and linked with these files instead of a kernel. Where the kernel would do something
 * that is not dm-xtent's, a function of this file stands, which is not counted.
 *
 * argv: what (engine, block, xts, md5), e or d, bytes, bytes of a request, of a sector, bits of the key
 */
#include <linux/kernel.h>
#include <linux/mempool.h>
#include <linux/slab.h>
#include <crypto/aes.h>
#include <crypto/internal/cipher.h>
#include <crypto/internal/skcipher.h>
#include <crypto/hash.h>
#include <crypto/md5.h>

#include "flight.h"

#define PAGES 17

/* Symbols between which count.py counts, and those of the rows. */
void count_begin(void);
void count_end(void);
asm("	.text\n"
    "	.arm\n"
    "	.global _start, count_begin, count_end, xt_clock_switch\n"
    "	.type _start, %function\n"
    "_start:	mov r0, sp\n"
    "	bic sp, sp, #7\n"
    "	b count_main\n"
    "	.type count_begin, %function\n"
    "count_begin:	bx lr\n"
    "	.type count_end, %function\n"
    "count_end:	bx lr\n"
    /* The row is in r1: an address for each. */
    "	.type xt_clock_switch, %function\n"
    "xt_clock_switch:\n"
    "	add pc, pc, r1, lsl #3\n"
    "	nop\n"
    "	.irp row, 0, 1, 2, 3, 4, 5\n"
    "	.global count_row_\\row\n"
    "	.type count_row_\\row, %function\n"
    "count_row_\\row:	nop\n"
    "	bx lr\n"
    "	.endr\n");

static unsigned long call(unsigned long number, unsigned long a, unsigned long b, unsigned long c)
{
	register unsigned long r7 asm("r7") = number;
	register unsigned long r0 asm("r0") = a;
	register unsigned long r1 asm("r1") = b;
	register unsigned long r2 asm("r2") = c;

	asm volatile("svc #0" : "+r" (r0) : "r" (r1), "r" (r2), "r" (r7) : "memory");
	return r0;
}

static void __noreturn leave(unsigned int status)
{
	call(1, status, 0, 0);
	__builtin_unreachable();
}

static u8 memory[1 << 20] __aligned(128);
static unsigned long taken;

static void *take(size_t size)
{
	void *p = memory + taken;

	taken = ALIGN(taken + size, 128);
	if (taken > sizeof(memory))
		leave(3);
	return p;
}

/* What the files counted want of a kernel. */
struct page *mem_map;
unsigned long __pv_phys_pfn_offset;
struct kmem_cache *kmalloc_caches[NR_KMALLOC_TYPES][KMALLOC_SHIFT_HIGH + 1];

void *__kmalloc(size_t size, gfp_t flags) { return take(size); }
void *kmalloc_trace(struct kmem_cache *s, gfp_t flags, size_t size) { return take(size); }
void kfree(const void *p) { }
int mempool_init(mempool_t *pool, int min_nr, mempool_alloc_t *alloc_fn,
		 mempool_free_t *free_fn, void *pool_data)
{
	pool->pool_data = alloc_fn(GFP_KERNEL, pool_data);
	return 0;
}
void mempool_exit(mempool_t *pool) { }
void *mempool_alloc(mempool_t *pool, gfp_t flags) { return pool->pool_data; }
void mempool_free(void *element, mempool_t *pool) { }
void complete(struct completion *x) { }
void wait_for_completion(struct completion *x) { }
void __init_swait_queue_head(struct swait_queue_head *q, const char *name,
			     struct lock_class_key *key) { }
int __cond_resched(void) { return 0; }
void sg_init_table(struct scatterlist *sg, unsigned int n) { memset(sg, 0, n * sizeof(*sg)); }
void sg_init_one(struct scatterlist *sg, const void *p, unsigned int n)
{
	sg_init_table(sg, 1);
	sg_mark_end(sg);
	sg_set_buf(sg, p, n);
}
struct scatterlist *sg_next(struct scatterlist *sg) { return sg_is_last(sg) ? NULL : sg + 1; }
void flush_dcache_page(struct page *page) { }
void __stack_chk_fail(void) { leave(4); }
int strncmp(const char *a, const char *b, size_t n)
{
	for (; n && *a && *a == *b; a++, b++, n--)
		;
	return n ? *a - *b : 0;
}

/* dm-xtent's other files. */
void xt_clock_start(struct xt_clock *clock) { clock->runs = true; }
void xt_clock_stop(struct xt_clock *clock, struct xt_target *xt) { }
void xt_count_run(struct xt_target *xt, unsigned int sectors) { }
unsigned int xt_run_limit(const struct xt_target *xt, u64 sector) { return xt->run_bytes; }

static unsigned int requests;

/* The engine completes before it is waited for, and changes nothing. */
static int engine(struct skcipher_request *req)
{
	requests++;
	req->base.complete(&req->base, 0);
	return -EINPROGRESS;
}

/* A driver of an engine for ECB, whose requests need nothing of their own. */
struct crypto_skcipher *crypto_alloc_skcipher(const char *name, u32 type, u32 mask)
{
	struct crypto_skcipher *tfm = take(sizeof(*tfm));
	struct skcipher_alg *alg = take(sizeof(*alg));

	memcpy(alg->base.cra_name, "ecb(aes)", sizeof("ecb(aes)"));
	alg->base.cra_blocksize = 16;
	tfm->reqsize = 64;
	tfm->base.__crt_alg = &alg->base;
	return tfm;
}

static struct crypto_skcipher *child;

static int crypt(struct skcipher_request *req, bool encrypt)
{
	struct crypto_skcipher *tfm = crypto_skcipher_reqtfm(req);

	if (tfm != child)
		return engine(req);
	return encrypt ? crypto_skcipher_alg(tfm)->encrypt(req) : crypto_skcipher_alg(tfm)->decrypt(req);
}

int crypto_skcipher_encrypt(struct skcipher_request *req) { return crypt(req, true); }
int crypto_skcipher_decrypt(struct skcipher_request *req) { return crypt(req, false); }

static u8 data[2][PAGES << PAGE_SHIFT] __aligned(4096);

static void fill(struct bio *bio, struct bio_vec *pages, u8 *from, unsigned int bytes)
{
	unsigned int i;

	for (i = 0; i < PAGES; i++) {
		pages[i].bv_page = virt_to_page(from + (i << PAGE_SHIFT));
		pages[i].bv_len = PAGE_SIZE;
		if (page_address(pages[i].bv_page) != from + (i << PAGE_SHIFT))
			leave(5);
	}
	bio->bi_io_vec = pages;
	bio->bi_iter.bi_size = bytes;
}

static void count_engine(bool encrypt, unsigned int bytes, unsigned int request,
			 unsigned int sector)
{
	static struct bio_vec pages[2][PAGES];
	static struct bio src, dst;
	static struct xt_target xt;
	static struct xt_counters counters;
	static struct dm_target ti;
	struct xt_pass pass = { .encrypt = encrypt, .src = &src };
	blk_status_t status;

	fill(&src, pages[0], data[0], bytes);
	fill(&dst, pages[1], data[1], bytes);
	xt.options.sector_size = sector;
	xt.sector_shift = ilog2(sector) - SECTOR_SHIFT;
	xt.options.in_flight = 1;
	xt.options.request_size = request;
	xt.iv_mode = XT_IV_PLAIN64;
	xt.counters = (struct xt_counters __percpu *)&counters;
	if (xt_engine_create(&ti, &xt, "ecb(aes)"))
		leave(6);
	/* A read is decrypted in place. */
	pass.dst = encrypt ? &dst : &src;
	pass.src_iter = src.bi_iter;
	pass.dst_iter = pass.dst->bi_iter;
	count_begin();
	status = xt_fly(&xt, &pass);
	count_end();
	if (status || requests != 2 * DIV_ROUND_UP(bytes, request))
		leave(7);
}

int crypto_aes_set_key(struct crypto_tfm *tfm, const u8 *key, unsigned int bytes);
void crypto_aes_encrypt(struct crypto_tfm *tfm, u8 *out, const u8 *in);
void crypto_aes_decrypt(struct crypto_tfm *tfm, u8 *out, const u8 *in);

static struct crypto_tfm *new_cipher(unsigned int key_bytes)
{
	struct crypto_tfm *tfm = take(sizeof(*tfm) + sizeof(struct crypto_aes_ctx) + 128);
	struct crypto_alg *alg = take(sizeof(*alg));
	u8 key[32];
	unsigned int i;

	alg->cra_blocksize = 16;
	alg->cra_cipher.cia_encrypt = crypto_aes_encrypt;
	alg->cra_cipher.cia_decrypt = crypto_aes_decrypt;
	tfm->__crt_alg = alg;
	for (i = 0; i < key_bytes; i++)
		key[i] = i;
	if (crypto_aes_set_key(tfm, key, key_bytes))
		leave(8);
	return tfm;
}

/* FIPS 197, appendix C: what is counted is AES. */
static void check_cipher(struct crypto_tfm *tfm, unsigned int key_bytes)
{
	static const u8 last[] = { [16] = 0x5a, [32] = 0x89 };
	u8 block[16];
	unsigned int i;

	for (i = 0; i < 16; i++)
		block[i] = i * 0x11;
	crypto_aes_encrypt(tfm, block, block);
	if (block[15] != last[key_bytes])
		leave(9);
}

static void count_block(bool encrypt, unsigned int blocks, unsigned int key_bytes)
{
	struct crypto_tfm *tfm = new_cipher(key_bytes);
	unsigned int i;

	check_cipher(tfm, key_bytes);
	count_begin();
	for (i = 0; i < blocks; i++)
		(encrypt ? crypto_aes_encrypt : crypto_aes_decrypt)(tfm, data[0], data[0]);
	count_end();
}

/* crypto/cipher.c does this for a block that is aligned. */
void crypto_cipher_encrypt_one(struct crypto_cipher *tfm, u8 *dst, const u8 *src)
{
	crypto_aes_encrypt(crypto_cipher_tfm(tfm), dst, src);
}

int crypto_ecb_encrypt(struct skcipher_request *req);
int crypto_ecb_decrypt(struct skcipher_request *req);
int xts_encrypt(struct skcipher_request *req);
int xts_decrypt(struct skcipher_request *req);

static struct crypto_skcipher *new_skcipher(unsigned int context)
{
	struct crypto_skcipher *tfm = take(sizeof(*tfm) + context + 128);
	struct skcipher_alg *alg = take(sizeof(*alg));

	alg->base.cra_blocksize = 16;
	alg->encrypt = crypto_ecb_encrypt;
	alg->decrypt = crypto_ecb_decrypt;
	alg->chunksize = 16;
	alg->walksize = 16;
	tfm->base.__crt_alg = &alg->base;
	return tfm;
}

/* A request for each sector, as dm-crypt makes them; what makes it is not counted. */
static void count_xts(bool encrypt, unsigned int bytes, unsigned int sector,
		      unsigned int key_bytes)
{
	struct crypto_skcipher *tfm = new_skcipher(64);
	struct skcipher_request *req = take(sizeof(*req) + 512);
	struct { void *child, *tweak; } *ctx = crypto_skcipher_ctx(tfm);
	u8 *iv = take(16);
	struct scatterlist sg;
	unsigned int i;

	child = new_skcipher(64);
	*(void **)crypto_skcipher_ctx(child) = new_cipher(key_bytes);
	ctx->child = child;
	ctx->tweak = new_cipher(key_bytes);
	check_cipher(ctx->tweak, key_bytes);
	count_begin();
	for (i = 0; i < bytes; i += sector) {
		sg_init_one(&sg, data[0] + i, sector);
		skcipher_request_set_tfm(req, tfm);
		skcipher_request_set_callback(req, 0, NULL, NULL);
		skcipher_request_set_crypt(req, &sg, &sg, sector, iv);
		if (encrypt ? xts_encrypt(req) : xts_decrypt(req))
			leave(10);
	}
	count_end();
}

int md5_init(struct shash_desc *desc);
int md5_update(struct shash_desc *desc, const u8 *data, unsigned int len);
int md5_final(struct shash_desc *desc, u8 *out);

static void count_md5(unsigned int bytes)
{
	struct shash_desc *desc = take(sizeof(*desc) + sizeof(struct md5_state));
	u8 digest[16];

	md5_init(desc);
	md5_final(desc, digest);
	/* RFC 1321, of nothing. */
	if (digest[0] != 0xd4 || digest[15] != 0x7e)
		leave(11);
	md5_init(desc);
	count_begin();
	md5_update(desc, data[0], bytes);
	count_end();
}

static unsigned int number(const char *s)
{
	unsigned int n = 0;

	while (*s >= '0' && *s <= '9')
		n = n * 10 + *s++ - '0';
	return n;
}

/* Called with what the program finds on its stack. */
void __noreturn __used __attribute__((optimize("no-stack-protector"))) count_main(unsigned long *stack);
void count_main(unsigned long *stack)
{
	static u8 tls[2048];
	char **argv = (char **)(stack + 1);
	bool encrypt;

	/* The kernel keeps its stack protector's value behind this register. */
	call(0xf0005, (unsigned long)tls, 0, 0);
	/* What the boot patches into __va() is not there: pages are counted to suit it. */
	__pv_phys_pfn_offset = (PAGE_OFFSET - (unsigned long)__va(0)) >> PAGE_SHIFT;
	if (stack[0] != 7)
		leave(2);
	encrypt = argv[2][0] == 'e';
	switch (argv[1][0]) {
	case 'e':
		count_engine(encrypt, number(argv[3]), number(argv[4]), number(argv[5]));
		break;
	case 'b':
		count_block(encrypt, number(argv[3]) / 16, number(argv[6]) / 8);
		break;
	case 'x':
		count_xts(encrypt, number(argv[3]), number(argv[5]), number(argv[6]) / 8);
		break;
	case 'm':
		count_md5(number(argv[3]));
		break;
	default:
		leave(2);
	}
	leave(0);
}
