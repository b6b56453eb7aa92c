// SPDX-License-Identifier: GPL-2.0
/*
 * The device-mapper target "xtent".
 *
 * <cipher> <key> <iv_offset> <device> <start> [<#options> <options>]
 */
#include <linux/audit.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "xtent.h"

/* As drivers/md/dm-audit.h, which modules outside of it do not see, has it. */
#ifdef CONFIG_DM_AUDIT
void dm_audit_log_ti(int audit_type, const char *dm_msg_prefix, const char *op,
		     struct dm_target *ti, int result);

static void xt_audit(struct dm_target *ti, const char *op, int result)
{
	dm_audit_log_ti(AUDIT_DM_CTRL, DM_MSG_PREFIX, op, ti, result);
}
#else
static void xt_audit(struct dm_target *ti, const char *op, int result)
{
}
#endif

static void xtent_dtr(struct dm_target *ti)
{
	struct xt_target *xt = ti->private;

	xt_audit(ti, "dtr", 1);
	if (xt->write_queue)
		destroy_workqueue(xt->write_queue);
	xt_exit_read(xt);
	xt_exit_write(xt);
	free_percpu(xt->counters);
	if (xt->ops)
		xt->ops->destroy(xt);
	if (xt->dev)
		dm_put_device(ti, xt->dev);
	mutex_destroy(&xt->key_lock);
	kfree(xt->noise);
	kfree(xt->key_name);
	kfree(xt->cipher);
	kfree(xt);
}

static int create_cipher(struct dm_target *ti, struct xt_target *xt, const char *string)
{
	const struct xt_xts_backend *backend = xt_xts_choose();
	char api[CRYPTO_MAX_ALG_NAME];
	bool engine;
	int r;

	xt->cipher = kstrdup(string, GFP_KERNEL);
	if (!xt->cipher)
		return -ENOMEM;
	r = xt_parse_cipher(ti, xt, string, api, sizeof(api), &engine);
	if (r)
		return r;
	if (engine)
		return xt_engine_create(ti, xt, api);
	if (strcmp(api, "xts(aes)") || !backend)
		return xt_skcipher_create(ti, xt, api);
	return xt_batch_create(ti, xt, backend);
}

static bool is_async(const struct xt_target *xt)
{
	return xt->tfm && crypto_skcipher_tfm(xt->tfm)->__crt_alg->cra_flags & CRYPTO_ALG_ASYNC;
}

static int create_queues(struct xt_target *xt, const char *name)
{
	/* Any CPU may take what waits, or with same_cpu_crypt the one that queued it alone. */
	unsigned int bound = xt->options.same_cpu_crypt ? WQ_PERCPU : WQ_UNBOUND;
	unsigned int active = xt->options.same_cpu_crypt ? 1 : num_online_cpus();
	unsigned int flags = WQ_MEM_RECLAIM | WQ_CPU_INTENSIVE | bound;

	/* Who waits for an engine leaves the CPU to the next. */
	if (is_async(xt))
		active += XT_ASYNC_BIOS;

	if (xt->options.high_priority)
		flags |= WQ_HIGHPRI;
	xt->read_queue = alloc_workqueue("xtent_read/%s", flags, active, name);
	xt->write_queue = alloc_workqueue("xtent_write/%s", flags, active, name);
	xt->counters = alloc_percpu(struct xt_counters);
	return xt->read_queue && xt->write_queue && xt->counters ? 0 : -ENOMEM;
}

static int parse_sector(const char *string, unsigned int shift, u64 *sector)
{
	if (kstrtou64(string, 10, sector) || *sector & ((1 << shift) - 1))
		return -EINVAL;
	return 0;
}

static int create(struct dm_target *ti, struct xt_target *xt, unsigned int argc, char **argv)
{
	struct xt_key key = {};
	u64 start;
	int r;

	r = xt_parse_options(ti, &xt->options, argc - 5, argv + 5);
	if (r)
		return r;
	xt->sector_shift = __ffs(xt->options.sector_size) - SECTOR_SHIFT;
	if (parse_sector(argv[2], xt->sector_shift, &xt->iv_offset)) {
		ti->error = "The IV offset is no multiple of the sector size, in 512-byte units";
		return -EINVAL;
	}
	if (kstrtou64(argv[4], 10, &start) || start != (sector_t)start) {
		ti->error = "The start is no sector number";
		return -EINVAL;
	}
	xt->start = start;

	ti->error = "Out of memory";
	r = create_cipher(ti, xt, argv[0]);
	if (r)
		return r;
	r = xt_init_write(xt) ?: xt_init_read(xt);
	if (!r)
		r = create_queues(xt, dm_table_device_name(ti->table));
	if (r) {
		ti->error = "Out of memory";
		return r;
	}
	xt->noise = kmalloc(max(xt->key_size, 1U), GFP_KERNEL);
	if (!xt->noise)
		return -ENOMEM;
	r = xt_key_read(xt, argv[1], &key) ?: xt_key_set(xt, &key);
	xt_key_forget(&key);
	if (r) {
		ti->error = "The key is malformed, of a wrong size, or not in the keyring";
		return r;
	}
	r = dm_get_device(ti, argv[3], dm_table_get_mode(ti->table), &xt->dev);
	if (r) {
		ti->error = "There is no such device";
		return r;
	}
	if (bdev_is_zoned(xt->dev->bdev)) {
		/* Writes come to a zone in their order, which no queue keeps, */
		xt->write_in_order = true;
		/* and have an IV of the place where they end up. */
		ti->emulate_zone_append = true;
	}
	return 0;
}

static int xtent_ctr(struct dm_target *ti, unsigned int argc, char **argv)
{
	struct xt_target *xt;
	int size, r;

	if (argc < 5) {
		if (argc > 1)
			memset(argv[1], '0', strlen(argv[1]));
		ti->error = "Wanted: <cipher> <key> <iv_offset> <device> <start> [<#opts> <opts>]";
		return -EINVAL;
	}
	size = xt_key_size(argv[1]);
	xt = size < 0 ? NULL : kzalloc(sizeof(*xt), GFP_KERNEL);
	if (!xt) {
		memset(argv[1], '0', strlen(argv[1]));
		ti->error = size < 0 ? "The key is malformed" : "Out of memory";
		return size < 0 ? size : -ENOMEM;
	}
	xt->key_size = size;
	mutex_init(&xt->key_lock);
	ti->private = xt;
	r = create(ti, xt, argc, argv);
	/* Where it came no further than the options. */
	memset(argv[1], '0', strlen(argv[1]));
	xt_audit(ti, "ctr", !r);
	if (r) {
		xtent_dtr(ti);
		return r;
	}
	ti->per_io_data_size = sizeof(struct xt_io);
	ti->num_flush_bios = 1;
	ti->num_discard_bios = xt->options.allow_discards;
	ti->limit_swap_bios = true;
	ti->accounts_remapped_io = true;
	ti->error = NULL;
	return 0;
}

static int xtent_map(struct dm_target *ti, struct bio *bio)
{
	struct xt_target *xt = ti->private;
	const unsigned int mask = (1 << xt->sector_shift) - 1;
	struct xt_io *io;

	/*
	 * DM's mark of a polled bio of which a part was accepted before comes with the rest (REQ_DM_POLL_LIST).
	 * Whoever is below would take it for a mark of its own, as NVMe does.
	 */
	bio->bi_opf &= ~REQ_DRV;
	/* Flushes, discards, and what is done to zones. */
	if (bio->bi_opf & REQ_PREFLUSH || !bio_has_data(bio)) {
		bio_set_dev(bio, xt->dev->bdev);
		if (bio_sectors(bio) || op_is_zone_mgmt(bio_op(bio)))
			bio->bi_iter.bi_sector = xt->start +
				dm_target_offset(ti, bio->bi_iter.bi_sector);
		return DM_MAPIO_REMAPPED;
	}
	/* Wiped between the two steps of a resume: zeros would encrypt, too. */
	if (unlikely(!test_bit(XT_KEY_VALID, &xt->flags)))
		return DM_MAPIO_KILL;
	/*
	 * A write's copy is one bio of single pages at worst. A read of huge pages would
	 * otherwise be decrypted by one CPU, at a stretch.
	 */
	if (bio->bi_iter.bi_size > BIO_MAX_VECS << PAGE_SHIFT) {
		/* It keeps to what io_hints says. */
		if (WARN_ON_ONCE(xt_may_not_be_split(bio)))
			return DM_MAPIO_KILL;
		dm_accept_partial_bio(bio, BIO_MAX_VECS << (PAGE_SHIFT - SECTOR_SHIFT));
	}
	bio_set_dev(bio, xt->dev->bdev);

	io = dm_per_bio_data(bio, sizeof(struct xt_io));
	io->xt = xt;
	io->bio = bio;
	io->offset = dm_target_offset(ti, bio->bi_iter.bi_sector);
	io->sector = io->offset + xt->iv_offset;
	if ((io->offset | bio_sectors(bio)) & mask)
		return DM_MAPIO_KILL;
	bio->bi_iter.bi_sector = xt->start + io->offset;
	io->iter = bio->bi_iter;
	return bio_data_dir(bio) == READ ? xt_map_read(xt, io) : xt_map_write(xt, io);
}

static void xtent_status(struct dm_target *ti, status_type_t type, unsigned int status_flags,
			 char *result, unsigned int maxlen)
{
	struct xt_target *xt = ti->private;
	unsigned int sz = 0;

	switch (type) {
	case STATUSTYPE_INFO:
		xt_emit_status(xt, result, maxlen, &sz);
		break;
	case STATUSTYPE_TABLE:
		xt_emit_table(ti, xt, result, maxlen, &sz);
		break;
	case STATUSTYPE_IMA:
		DMEMIT_TARGET_NAME_VERSION(ti->type);
		xt_emit_ima(xt, result, maxlen, &sz);
		break;
	}
}

static void xtent_postsuspend(struct dm_target *ti)
{
	struct xt_target *xt = ti->private;

	mutex_lock(&xt->key_lock);
	set_bit(XT_SUSPENDED, &xt->flags);
	mutex_unlock(&xt->key_lock);
}

static int xtent_preresume(struct dm_target *ti)
{
	struct xt_target *xt = ti->private;
	int r = 0;

	mutex_lock(&xt->key_lock);
	if (!test_bit(XT_KEY_VALID, &xt->flags))
		r = -EAGAIN;
	mutex_unlock(&xt->key_lock);
	if (r)
		DMERR("not resumed: there is no key; set one by message");
	return r;
}

/*
 * Not before: the device stays suspended if another target of it cannot resume, and
 * then takes keys still. From here on the key stays as it is.
 */
static void xtent_resume(struct dm_target *ti)
{
	struct xt_target *xt = ti->private;

	mutex_lock(&xt->key_lock);
	clear_bit(XT_SUSPENDED, &xt->flags);
	mutex_unlock(&xt->key_lock);
}

/* Sets `key`, or wipes what there is. */
static int change_key(struct xt_target *xt, struct xt_key *key)
{
	int r;

	mutex_lock(&xt->key_lock);
	if (!test_bit(XT_SUSPENDED, &xt->flags)) {
		DMWARN("the key can be changed while the device is suspended only");
		r = -EINVAL;
	} else {
		r = key ? xt_key_set(xt, key) : xt_key_wipe(xt);
	}
	mutex_unlock(&xt->key_lock);
	return r;
}

/* key set <key>, key wipe: while suspended. */
static int xtent_message(struct dm_target *ti, unsigned int argc, char **argv, char *result,
			 unsigned int maxlen)
{
	struct xt_target *xt = ti->private;
	struct xt_key key = {};
	unsigned int i;
	int r;

	if (argc == 3 && !strcasecmp(argv[0], "key") && !strcasecmp(argv[1], "set")) {
		/* Not under the lock: the keyring may ask a program for it. */
		r = xt_key_read(xt, argv[2], &key) ?: change_key(xt, &key);
		xt_key_forget(&key);
	} else if (argc == 2 && !strcasecmp(argv[0], "key") && !strcasecmp(argv[1], "wipe")) {
		r = change_key(xt, NULL);
	} else {
		DMWARN("unknown message: key set <key>, or key wipe");
		r = -EINVAL;
	}
	/* Where it was not understood, too. */
	for (i = min(argc, 2U); i < argc; i++)
		memset(argv[i], '0', strlen(argv[i]));
	return r;
}

static int xtent_iterate_devices(struct dm_target *ti, iterate_devices_callout_fn fn, void *data)
{
	struct xt_target *xt = ti->private;

	return fn(ti, xt->dev, xt->start, ti->len, data);
}

static void xtent_io_hints(struct dm_target *ti, struct queue_limits *limits)
{
	struct xt_target *xt = ti->private;
	unsigned int size = xt->options.sector_size;

	limits->logical_block_size = max(limits->logical_block_size, size);
	limits->physical_block_size = max(limits->physical_block_size, size);
	limits->io_min = max(limits->io_min, size);
	/* A sector lies in one piece. */
	limits->dma_alignment = limits->logical_block_size - 1;
	/* A write's copy is one bio of single pages at worst. */
	xt_limit_atomic_writes(limits, BIO_MAX_VECS << PAGE_SHIFT);
	if (xt->write_in_order) {
		const unsigned int most = BIO_MAX_VECS << (PAGE_SHIFT - SECTOR_SHIFT);

		limits->max_hw_sectors = min(limits->max_hw_sectors, most);
		limits->max_sectors = min(limits->max_sectors, most);
		xt_limit_appends(limits, most);
	}
}

#ifdef CONFIG_BLK_DEV_ZONED
static int xtent_report_zones(struct dm_target *ti, struct dm_report_zones_args *args,
			      unsigned int nr_zones)
{
	struct xt_target *xt = ti->private;

	return dm_report_zones(xt->dev->bdev, xt->start,
			       xt->start + dm_target_offset(ti, args->next_sector), args,
			       nr_zones);
}
#else
#define xtent_report_zones NULL
#endif

static struct target_type xtent_target = {
	.name = "xtent",
	.version = { 1, 1, 0 },
	.features = DM_TARGET_ZONED_HM | XT_ATOMIC_WRITES,
	.module = THIS_MODULE,
	.report_zones = xtent_report_zones,
	.ctr = xtent_ctr,
	.dtr = xtent_dtr,
	.map = xtent_map,
	.status = xtent_status,
	.postsuspend = xtent_postsuspend,
	.preresume = xtent_preresume,
	.resume = xtent_resume,
	.message = xtent_message,
	.iterate_devices = xtent_iterate_devices,
	.io_hints = xtent_io_hints,
};

static int __init xtent_init(void)
{
	int r = xt_xts_init();

	xt_clock_init();
	return r ?: dm_register_target(&xtent_target);
}

static void __exit xtent_exit(void)
{
	dm_unregister_target(&xtent_target);
}

module_init(xtent_init);
module_exit(xtent_exit);

MODULE_DESCRIPTION(DM_NAME " target that encrypts runs of sectors, on disk as dm-crypt does");
MODULE_LICENSE("GPL");
