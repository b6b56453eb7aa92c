// SPDX-License-Identifier: GPL-2.0
/*
 * device=PATH: copies 16 KiB of a block device to the next 16 KiB, through memory that
 * begins 512 bytes into a page, so that sectors of 4096 bytes lie across pages. No
 * program may do that; parts of the kernel may.
 */
#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/fs.h>
#include <linux/module.h>

#define BYTES 16384

static char *device = "";
module_param(device, charp, 0);

static int transfer(struct block_device *bdev, struct page *page, blk_opf_t op, sector_t sector)
{
	struct bio *bio = bio_alloc(bdev, 1, op, GFP_KERNEL);
	int r;

	bio->bi_iter.bi_sector = sector;
	__bio_add_page(bio, page, BYTES, 512);
	r = submit_bio_wait(bio);
	bio_put(bio);
	return r;
}

static int __init shifted_init(void)
{
	struct page *page = alloc_pages(GFP_KERNEL | __GFP_COMP, get_order(BYTES + 512));
	struct file *file;
	int r;

	if (!page)
		return -ENOMEM;
	file = filp_open(device, O_RDWR, 0);
	r = PTR_ERR_OR_ZERO(file);
	if (!r) {
		struct inode *inode = file->f_mapping->host;

		r = S_ISBLK(inode->i_mode) ? 0 : -ENOTBLK;
		r = r ?: transfer(I_BDEV(inode), page, REQ_OP_READ, 0);
		r = r ?: transfer(I_BDEV(inode), page, REQ_OP_WRITE, BYTES >> SECTOR_SHIFT);
		filp_close(file, NULL);
	}
	__free_pages(page, get_order(BYTES + 512));
	return r;
}

static void __exit shifted_exit(void)
{
}

module_init(shifted_init);
module_exit(shifted_exit);

MODULE_DESCRIPTION("Requests with memory that programs cannot give, for tests");
MODULE_LICENSE("GPL");
