/* SPDX-License-Identifier: GPL-2.0 */
/*
 * xtent_pci: driver for the co-processor of rtl/engine/README.md, which has the words
 * used here: submission, completion, ring, run, key slot.
 */
#ifndef XTENT_PCI_DEVICE_H
#define XTENT_PCI_DEVICE_H

#include <linux/bottom_half.h>
#include <linux/io.h>
#include <linux/list.h>
#include <linux/pci.h>
#include <linux/scatterlist.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <crypto/aes.h>

#include "registers.h"

/* The most pieces of memory in a request, as many as dm-xtent puts there. */
#define XTP_PIECES 256

#define XTP_MAX_RINGS (1 << XTENT_ENGINE_CAP0_RINGS_BITS)
#define XTP_MAX_SLOTS 32
#define XTP_MAX_KEY (2 * AES_KEYSIZE_256)

/* A field of a register. */
#define XTP_MASK(name) ((1u << XTENT_ENGINE_##name##_BITS) - 1)
#define XTP_GET(value, name) ((value) >> XTENT_ENGINE_##name##_LOW & XTP_MASK(name))
#define XTP_PUT(value, name) ((u32)(value) << XTENT_ENGINE_##name##_LOW)

/* Reads as that when nobody answers. */
#define XTP_ALL_ONES (~0u)

/* All bits of the interrupt registers that mean something. */
#define XTP_EVERY_RING XTP_MASK(INT_STATUS_RINGS)
#define XTP_INT_FAULT XTP_PUT(1, INT_STATUS_FAULT)

struct xtp_device;

/* A key as the device gets it. It stays where it is while there are jobs with it. */
struct xtp_key {
	u64 id;			/* no other key's, ever; 0: there is no key */
	u8 cipher;		/* XTENT_ENGINE_CIPHER_... */
	u8 size;		/* bytes */
	bool is_aes256;
	bool refused;		/* by the device; with its lock held */
	u8 bytes[XTP_MAX_KEY];
};

enum xtp_outcome {
	XTP_DONE,
	XTP_UNTOUCHED,		/* the device never got it */
	XTP_FAILED,		/* what is in the destination is not known */
};

/* What the device is to do: a request of the crypto API, or of a test. */
struct xtp_job {
	struct list_head node;
	/* With bottom halves off. */
	void (*done)(struct xtp_job *job, enum xtp_outcome outcome);
	/* It left the queue in front of a full ring; NULL if it may not wait there. */
	void (*entered)(struct xtp_job *job);
	struct xtp_key *key;
	struct scatterlist *src, *dst;	/* the same: in place */
	unsigned int src_pieces, dst_pieces;
	unsigned int src_mapped, dst_mapped;	/* of the device's lists */
	unsigned int bytes;
	u32 units;
	u8 op, log2_unit;
	u8 slot;
	bool decrypt;
	bool backlogged;	/* `entered` is to be called */
	u64 cookie;
	u8 tweak[AES_BLOCK_SIZE];
};

struct xtp_ring {
	unsigned int number;
	u8 *submissions, *completions;
	dma_addr_t submissions_at, completions_at;
	void **lists;		/* one memory of two lists for each entry */
	dma_addr_t *lists_at;
	struct xtp_job **jobs;
	u16 tail, head;		/* submitted, and completions read, modulo 2^16 */
	bool rung;		/* tail is what the device knows */
	unsigned long progress;	/* when it last completed or got something, in jiffies */
	/* The watchdog's: where it was, and whether something was there then. */
	u16 seen;
	bool doubted;
};

enum xtp_slot_state {
	XTP_SLOT_EMPTY,
	XTP_SLOT_LOADING,
	XTP_SLOT_LOADED,
	XTP_SLOT_STALE,		/* its key is nobody's, and to be cleared */
};

struct xtp_slot {
	enum xtp_slot_state state;
	bool closing;		/* takes no more jobs, to be another key's */
	u64 key;
	unsigned int users;	/* jobs in rings */
	u64 used;		/* when, by the count of submissions */
};

enum xtp_state {
	XTP_OFF,		/* not started, suspended, or about to go */
	XTP_UP,
	XTP_DRAINING,		/* takes nothing more */
	XTP_RESETTING,
	XTP_DEAD,
};

enum xtp_trouble {
	XTP_SILENT,		/* may go on after a reset, as with the next */
	XTP_FAULT,
	XTP_BROKEN,		/* it did what cannot be */
	XTP_GONE,
};

struct xtp_caps {
	unsigned int level, rings, slots;
	u32 ciphers;
	unsigned int key_bits;	/* bit 0: 128, bit 1: 256 */
	unsigned int units;	/* of runs in XTS: bit 0: 512 bytes, ... */
	unsigned int xts_bytes;	/* of op XTS */
	unsigned int pieces;
	unsigned int address_bits;
	unsigned int log2_ring;
	u64 bytes;
};

/* What happened so far, for sysfs. */
struct xtp_counters {
	u64 requests, runs, bytes, failed, lost_interrupts, key_loads, resets;
};

struct xtp_device {
	struct pci_dev *pdev;
	void __iomem *registers;
	struct xtp_caps caps;
	unsigned int rings, log2_ring;	/* in use */
	bool fault_vector;

	/* Of all that follows; taken with bottom halves off. */
	spinlock_t lock;
	enum xtp_state state;
	enum xtp_trouble trouble;
	const char *reason;
	bool worked;		/* something was completed since it was started */
	unsigned int barren;	/* resets without that in between */
	unsigned int failures;	/* requests in a row */
	unsigned int recent;	/* resets since then, in jiffies */
	unsigned long recent_since;
	unsigned int epoch;	/* starts */
	struct xtp_ring ring[XTP_MAX_RINGS];
	struct xtp_slot slot[XTP_MAX_SLOTS];
	struct list_head waiting;	/* jobs for room in a ring or a slot for their key */
	unsigned int waiting_jobs, jobs;	/* there, and in rings */
	bool key_waits;		/* the first one's, for a slot: all have jobs in rings */
	u64 submitted;		/* jobs, ever */
	struct xtp_counters counters;

	wait_queue_head_t drained;
	/* One after the other, on one work queue. */
	struct workqueue_struct *queue;
	struct work_struct key_work, reset_work;
	struct delayed_work watch_work;
};

/* The device that is there; read under RCU. */
extern struct xtp_device __rcu *xtp_active;

/* Module parameters. */
extern unsigned int xtp_watchdog;	/* milliseconds */
extern unsigned int xtp_coalesce_count, xtp_coalesce_us;

/*
 * The PCI bus of User Mode Linux 7 takes one access at a time and does not see to that: who
 * is interrupted in one would have its answer taken by the next, which may be that of
 * another thread or of a soft interrupt that submits.
 */
static inline void xtp_hold_bus(void)
{
	if (IS_ENABLED(CONFIG_UML))
		local_bh_disable();
}

static inline void xtp_let_go_of_bus(void)
{
	if (IS_ENABLED(CONFIG_UML))
		local_bh_enable();
}

#ifdef XTP_INSTANT
/* instant.c */
extern const struct attribute_group xtp_instant_group;
bool xtp_instant_read(struct xtp_device *xtp);
bool xtp_instant_write(struct xtp_device *xtp, unsigned int at, u32 value);
#else
static inline bool xtp_instant_read(struct xtp_device *xtp) { return false; }
static inline bool xtp_instant_write(struct xtp_device *xtp, unsigned int at, u32 value)
{
	return false;
}
#endif

static inline u32 xtp_read(struct xtp_device *xtp, unsigned int at)
{
	u32 value;

	if (xtp_instant_read(xtp))
		return 0;
	xtp_hold_bus();
	value = readl(xtp->registers + at);
	xtp_let_go_of_bus();
	return value;
}

static inline void xtp_write(struct xtp_device *xtp, unsigned int at, u32 value)
{
	if (xtp_instant_write(xtp, at, value))
		return;
	xtp_hold_bus();
	writel(value, xtp->registers + at);
	xtp_let_go_of_bus();
}

static inline unsigned int xtp_ring_register(const struct xtp_ring *ring, unsigned int at)
{
	return XTENT_ENGINE_RINGS_OFFSET + ring->number * XTENT_ENGINE_RINGS_STRIDE + at;
}

/* submit.c: jobs and rings. */
int xtp_rings_alloc(struct xtp_device *xtp);
void xtp_rings_clear(struct xtp_device *xtp);
void xtp_rings_start(struct xtp_device *xtp);
int xtp_submit(struct xtp_device *xtp, struct xtp_job *job);
void xtp_pump(struct xtp_device *xtp);
void xtp_forget_tweak(struct xtp_ring *ring, unsigned int index);
void xtp_unmap(struct xtp_device *xtp, struct xtp_job *job);

/* complete.c */
unsigned int xtp_look(struct xtp_device *xtp, u32 rings);
bool xtp_is_ready(struct xtp_device *xtp, struct xtp_ring *ring);
void xtp_finish(struct xtp_device *xtp, struct list_head *jobs, enum xtp_outcome outcome);
void xtp_reclaim(struct xtp_device *xtp);
int xtp_vectors_init(struct xtp_device *xtp);
int xtp_interrupts_init(struct xtp_device *xtp);
void xtp_interrupts_exit(struct xtp_device *xtp);

/* keys.c */
struct xtp_slot *xtp_slot_of(struct xtp_device *xtp, u64 key);
void xtp_key_new(struct xtp_key *key, u8 cipher, const u8 *bytes, unsigned int size, bool is_aes256);
void xtp_key_forget(struct xtp_key *key);
void xtp_key_work(struct work_struct *work);

/* reset.c */
int xtp_stop(struct xtp_device *xtp);
void xtp_quiesce(struct xtp_device *xtp);
int xtp_go(struct xtp_device *xtp);
void xtp_trouble(struct xtp_device *xtp, enum xtp_trouble trouble, const char *reason);
void xtp_trouble_locked(struct xtp_device *xtp, enum xtp_trouble trouble, const char *reason);
void xtp_doubt(struct xtp_device *xtp);
void xtp_watch(struct xtp_device *xtp);
void xtp_reset_init(struct xtp_device *xtp);

/* selftest.c */
int xtp_selftest(struct xtp_device *xtp);

/* cipher.c: the crypto API's side. */
int xtp_cipher_init(void);
void xtp_cipher_exit(void);
int xtp_cipher_register(const struct xtp_caps *caps);
bool xtp_runs_xts(const struct xtp_caps *caps);

/* request.c */
u64 xtp_fallbacks(void);

/* sysfs.c */
extern const struct attribute_group *xtp_groups[];

#endif
