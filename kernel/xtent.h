/* SPDX-License-Identifier: GPL-2.0 */
/*
 * dm-xtent: device-mapper target that encrypts as dm-crypt does, and hands
 * whole runs of sectors to the cipher.
 */
#ifndef XTENT_H
#define XTENT_H

#include <linux/bio.h>
#include <linux/device-mapper.h>
#include <linux/llist.h>
#include <linux/mempool.h>
#include <linux/percpu.h>
#include <linux/percpu_counter.h>
#include <linux/workqueue.h>
#include <crypto/skcipher.h>

#include "compat.h"
#include "xts.h"

#define DM_MSG_PREFIX "xtent"

/* Bios that may wait for an asynchronous cipher, beside one on each CPU. */
#define XT_ASYNC_BIOS 8

/* The longest IV of a cipher: HCTR2's and Adiantum's. */
#define XT_MAX_IV 32

enum xt_iv_mode {
	XT_IV_NONE,		/* the cipher takes none, or zeros */
	XT_IV_PLAIN,		/* 32 bits, little endian */
	XT_IV_PLAIN64,		/* 64 bits, little endian */
	XT_IV_PLAIN64BE,	/* 64 bits, big endian, in the last bytes */
};

/* What a table line says, but for the key. */
struct xt_options {
	bool allow_discards;
	bool same_cpu_crypt;
	bool high_priority;
	bool submit_from_crypt_cpus;
	bool no_read_workqueue;
	bool no_write_workqueue;
	bool write_workqueue;
	bool iv_large_sectors;
	unsigned int sector_size;	/* bytes */
	unsigned int request_size;	/* bytes; 0: the whole bio */
	unsigned int in_flight;		/* requests of a bio */
};

/* A histogram has a class for runs of 1, 2-3, 4-7, ... sectors. */
#define XT_RUN_CLASSES 12

/* What a request's time goes to, when the module's parameter `timing` is set. */
enum xt_row {
	XT_ROW_OTHER,
	XT_ROW_TWEAK,		/* IVs, and the masks made from tweaks, on the CPU */
	XT_ROW_IV_ENGINE,	/* IVs to tweaks in the engine */
	XT_ROW_XOR1,
	XT_ROW_XOR2,
	XT_ROW_ENGINE,		/* the data in the cipher or engine */
	XT_ROWS,
};

/* What happened on one CPU; `dmsetup status` adds them up. */
struct xt_counters {
	u64 reads, writes;		/* requests */
	u64 read_sectors, write_sectors;
	u64 queued;			/* requests handed to a work queue */
	u64 deferred;			/* reads decrypted in a soft interrupt soon after */
	u64 merged;			/* small reads decrypted with others */
	u64 requests;			/* to the crypto API */
	u64 busy;			/* of these, put off by a full queue */
	u64 runs[XT_RUN_CLASSES];
	u64 ticks[XT_ROWS];
};

/* Where the time of a flight goes: its clock is in one row at any time. */
struct xt_clock {
	bool runs;
	enum xt_row row;
	u64 since;
	u64 ticks[XT_ROWS];
};

/*
 * Reads that completed on one CPU where the cipher cannot run: some wait for a soft
 * interrupt of that CPU, some for a work queue.
 */
struct xt_done {
	struct llist_head soon;
	struct xt_bh bh;
	struct llist_head reads;
	struct work_struct work;
	struct xt_target *xt;
};

/* A bio's way through the cipher, to another bio or in place. */
struct xt_pass {
	bool encrypt;
	bool may_rest;			/* others may have the CPU meanwhile */
	u64 sector;			/* of the first IV, in 512-byte units */
	struct bio *src, *dst;		/* the same, or not */
	struct bvec_iter src_iter, dst_iter;
};

struct xt_job;

/* What the ways of encrypting do differently: XTS on the CPU, the crypto API, an engine. */
struct xt_cipher_ops {
	/* For the status: what runs the cipher. */
	const char *(*name)(const struct xt_target *xt);
	int (*set_key)(struct xt_target *xt, const u8 *key, unsigned int key_size);
	/* Overwrites the key. */
	int (*wipe_key)(struct xt_target *xt);
	blk_status_t (*crypt)(struct xt_target *xt, const struct xt_pass *pass);
	/* Waits for requests, so that it runs only where it may sleep. */
	bool may_sleep;
	/*
	 * For flight.c: the next step of a job, -EINPROGRESS or -EBUSY if a request is
	 * under way, else it is over. Then what it knows may have to be overwritten.
	 */
	int (*step)(struct xt_job *job);
	void (*forget)(struct xt_job *job);
	/* Of a target that may be half made. */
	void (*destroy)(struct xt_target *xt);
};

enum xt_flag {
	XT_SUSPENDED,
	XT_KEY_VALID,
};

struct xt_target {
	struct dm_dev *dev;
	sector_t start;			/* where the target begins on dev */
	u64 iv_offset;			/* 512-byte sectors */
	unsigned int sector_shift;	/* sectors of the cipher are 512 << shift */
	struct xt_options options;
	enum xt_iv_mode iv_mode;
	unsigned long flags;		/* enum xt_flag */

	char *cipher;			/* as the table line has it */
	char *key_name;			/* in the keyring: "type:description" */
	unsigned int key_size;		/* bytes */
	/* Held while the key, its name or XT_SUSPENDED changes. */
	struct mutex key_lock;
	u8 *noise;			/* key_size bytes, to overwrite a cipher's key with */

	const struct xt_cipher_ops *ops;
	struct xt_xts *xts;		/* of XTS on the CPU */
	struct crypto_skcipher *tfm;	/* of all others */
	struct crypto_skcipher *tweak_tfm;	/* of an engine, whose data key tfm has */
	unsigned int iv_size;		/* bytes */
	bool takes_runs;		/* tfm, of data units of our sectors */
	unsigned int run_bytes;		/* the most in a request to tfm */

	mempool_t jobs;			/* for tfm */
	mempool_t pages;
	struct percpu_counter pages_used;	/* by the requests under way */
	bool shares_memory;		/* counted among those that do */
	struct bio_set bios;
	/* Held by whoever waits for pages, so that two cannot block each other. */
	struct mutex pages_lock;

	struct workqueue_struct *read_queue;
	struct workqueue_struct *write_queue;
	bool write_in_order;		/* zoned: by the writer, and no queue */
	struct xt_done __percpu *done;
	struct xt_counters __percpu *counters;
};

/* A request of ours, in the per-bio data of the device mapper. */
struct xt_io {
	struct xt_target *xt;
	struct bio *bio;
	struct bvec_iter iter;		/* of the data */
	sector_t offset;		/* in the target */
	u64 sector;			/* of the first IV, in 512-byte units */
	bio_end_io_t *end_io;		/* of the bio, while it is ours */
	void *private;
	struct task_struct *reader;	/* who asked, compared only */
	struct llist_node node;
	struct work_struct work;
};

/* table.c */
int xt_parse_cipher(struct dm_target *ti, struct xt_target *xt,
		    const char *string, char *api, size_t api_size, bool *engine);
int xt_parse_options(struct dm_target *ti, struct xt_options *options,
		     unsigned int argc, char **argv);
void xt_emit_table(struct dm_target *ti, struct xt_target *xt,
		   char *result, unsigned int maxlen, unsigned int *size);
void xt_emit_ima(const struct xt_target *xt, char *result, unsigned int maxlen,
		 unsigned int *size);

/* key.c */
struct xt_key {
	u8 *bytes;			/* key_size of the target */
	char *name;			/* in the keyring, or NULL */
};

int xt_key_size(const char *string);
int xt_key_read(const struct xt_target *xt, char *string, struct xt_key *key);
int xt_key_set(struct xt_target *xt, struct xt_key *key);
void xt_key_forget(struct xt_key *key);
int xt_key_wipe(struct xt_target *xt);

/* iv.c */
u64 xt_iv_number(const struct xt_target *xt, u64 sector);
void xt_make_iv(const struct xt_target *xt, u64 sector, u8 *iv);

/* batch.c: from bios to runs of sectors for the cipher */
int xt_batch_create(struct dm_target *ti, struct xt_target *xt,
		    const struct xt_xts_backend *backend);
void xt_decrypt_all(struct xt_target *xt, struct llist_node *ios, bool may_rest);

/* read.c, write.c */
int xt_map_read(struct xt_target *xt, struct xt_io *io);
void xt_complete_read(struct xt_io *io);
int xt_map_write(struct xt_target *xt, struct xt_io *io);
int xt_init_read(struct xt_target *xt);
void xt_exit_read(struct xt_target *xt);
int xt_init_write(struct xt_target *xt);
void xt_exit_write(struct xt_target *xt);

/* flight.c: the crypto API's way */
blk_status_t xt_fly(struct xt_target *xt, const struct xt_pass *pass);

/* skcipher.c, engine.c */
int xt_skcipher_create(struct dm_target *ti, struct xt_target *xt, const char *api);
int xt_skcipher_wipe_key(struct xt_target *xt);
void xt_skcipher_destroy(struct xt_target *xt);
const char *xt_skcipher_name(const struct xt_target *xt);
int xt_engine_create(struct dm_target *ti, struct xt_target *xt, const char *api);
unsigned int xt_run_limit(const struct xt_target *xt, u64 sector);

/* run.c */
bool xt_run_begin(struct crypto_skcipher *tfm, unsigned int data_unit_size);

/* stats.c */
void xt_count_request(struct xt_target *xt, bool write, unsigned int sectors);
u64 xt_ticks_now(void);
void xt_clock_init(void);
void xt_clock_start(struct xt_clock *clock);
void xt_clock_stop(struct xt_clock *clock, struct xt_target *xt);
void xt_clock_switch(struct xt_clock *clock, enum xt_row row);
void xt_emit_status(struct xt_target *xt, char *result, unsigned int maxlen,
		    unsigned int *size);

/* From here on, time goes to another row. */
static inline void xt_clock_enter(struct xt_clock *clock, enum xt_row row)
{
	if (unlikely(clock->runs))
		xt_clock_switch(clock, row);
}

/* What has passed since the last switch belongs to this row. */
static inline void xt_clock_was(struct xt_clock *clock, enum xt_row row)
{
	clock->row = row;
}

/* Adds to a counter of this CPU. */
#define xt_count(xt, what, n) this_cpu_add((xt)->counters->what, n)

#endif
