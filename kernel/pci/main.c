// SPDX-License-Identifier: GPL-2.0
/* The device's coming and going. */
#include <linux/dma-mapping.h>
#include <linux/module.h>

#include "device.h"

unsigned int xtp_watchdog = 10000;
module_param_named(watchdog, xtp_watchdog, uint, 0444);
MODULE_PARM_DESC(watchdog, "Milliseconds after which a silent device is reset (10000)");

unsigned int xtp_coalesce_count = 1;
module_param_named(coalesce_count, xtp_coalesce_count, uint, 0444);
MODULE_PARM_DESC(coalesce_count, "Completions for one interrupt, up to 255 (1)");

unsigned int xtp_coalesce_us;
module_param_named(coalesce_us, xtp_coalesce_us, uint, 0444);
MODULE_PARM_DESC(coalesce_us, "Microseconds that an interrupt waits for them; at least 1 with coalesce_count above 1 (0)");

static unsigned int ring_entries = 64;
module_param(ring_entries, uint, 0444);
MODULE_PARM_DESC(ring_entries, "Requests in a ring, rounded down to a power of two that the device has (64)");

struct xtp_device __rcu *xtp_active;

/* One device is driven, which is the one that holds this. */
static DEFINE_MUTEX(active_lock);

static int read_caps(struct xtp_device *xtp)
{
	struct device *dev = &xtp->pdev->dev;
	struct xtp_caps *caps = &xtp->caps;
	u32 cap0, cap1, cap2;
	u32 id = xtp_read(xtp, XTENT_ENGINE_REG_ID);
	u32 version = xtp_read(xtp, XTENT_ENGINE_REG_VERSION);

	if (id != XTENT_ENGINE_ID)
		return dev_err_probe(dev, -ENODEV, "its ID is %#x: not a co-processor\n", id);
	if (XTP_GET(version, VERSION_MAJOR) != XTENT_ENGINE_MAJOR)
		return dev_err_probe(dev, -ENODEV, "its layout has version %u, this driver is for %u\n",
				     XTP_GET(version, VERSION_MAJOR), XTENT_ENGINE_MAJOR);
	cap0 = xtp_read(xtp, XTENT_ENGINE_REG_CAP0);
	cap1 = xtp_read(xtp, XTENT_ENGINE_REG_CAP1);
	cap2 = xtp_read(xtp, XTENT_ENGINE_REG_CAP2);
	caps->level = XTP_GET(cap0, CAP0_LEVEL);
	caps->rings = XTP_GET(cap0, CAP0_RINGS);
	caps->slots = XTP_GET(cap0, CAP0_SLOTS);
	caps->address_bits = XTP_GET(cap0, CAP0_ADDRESS_BITS);
	caps->ciphers = XTP_GET(cap1, CAP1_CIPHERS);
	caps->key_bits = XTP_GET(cap1, CAP1_KEY_BITS);
	caps->units = XTP_GET(cap1, CAP1_XTS_UNITS);
	caps->log2_ring = XTP_GET(cap2, CAP2_LOG2_RING);
	caps->xts_bytes = XTP_GET(cap2, CAP2_XTS_BLOCKS) * AES_BLOCK_SIZE;
	if (caps->level < 1 || caps->level > 3 || caps->rings < 1 ||
	    caps->rings > fls(XTP_EVERY_RING) || caps->slots < 1 || caps->slots > XTP_MAX_SLOTS ||
	    caps->address_bits < 12 || caps->address_bits > 64 || !caps->key_bits ||
	    XTP_GET(cap2, CAP2_LOG2_BYTES) < 4 || XTP_GET(cap2, CAP2_LOG2_BYTES) > 32 ||
	    XTP_GET(cap2, CAP2_LOG2_ENTRIES) > 32)
		return dev_err_probe(dev, -ENODEV,
				     "capabilities that cannot be: %#x %#x %#x\n", cap0, cap1, cap2);
	caps->bytes = min(1ull << XTP_GET(cap2, CAP2_LOG2_BYTES), 1ull << 31);
	caps->pieces = min(1ull << XTP_GET(cap2, CAP2_LOG2_ENTRIES), (u64)XTP_PIECES);
	if (!(caps->ciphers & BIT(XTENT_ENGINE_CIPHER_ECB)) && !xtp_runs_xts(caps))
		return dev_err_probe(dev, -ENODEV, "no cipher that the kernel has: %#x\n",
				     caps->ciphers);
	return 0;
}

static int set_up_bus(struct xtp_device *xtp)
{
	struct pci_dev *pdev = xtp->pdev;
	int r = pcim_enable_device(pdev);

	if (r)
		return dev_err_probe(&pdev->dev, r, "cannot be enabled\n");
	if (pci_resource_len(pdev, 0) < XTENT_ENGINE_BAR_BYTES)
		return dev_err_probe(&pdev->dev, -ENODEV, "BAR 0 is too small for its registers\n");
	r = pcim_iomap_regions(pdev, BIT(0), "xtent_pci");
	if (r)
		return dev_err_probe(&pdev->dev, r, "BAR 0 cannot be mapped\n");
	xtp->registers = pcim_iomap_table(pdev)[0];
	return 0;
}

static int set_up_dma(struct xtp_device *xtp)
{
	struct device *dev = &xtp->pdev->dev;
	int r = dma_set_mask_and_coherent(dev, DMA_BIT_MASK(xtp->caps.address_bits));

	if (r)
		return dev_err_probe(dev, r, "%u address bits are too few here\n",
				     xtp->caps.address_bits);
	dma_set_max_seg_size(dev, UINT_MAX);
	xtp->log2_ring = min(fls(max(ring_entries, 1u)) - 1u, xtp->caps.log2_ring);
	return xtp_rings_alloc(xtp);
}

static int activate(struct xtp_device *xtp)
{
	int r = 0;

	mutex_lock(&active_lock);
	if (rcu_access_pointer(xtp_active))
		r = dev_err_probe(&xtp->pdev->dev, -EBUSY, "another co-processor is in use: one is driven\n");
	else
		rcu_assign_pointer(xtp_active, xtp);
	mutex_unlock(&active_lock);
	return r;
}

static void deactivate(struct xtp_device *xtp)
{
	mutex_lock(&active_lock);
	if (rcu_access_pointer(xtp_active) == xtp)
		RCU_INIT_POINTER(xtp_active, NULL);
	mutex_unlock(&active_lock);
	/* Nobody comes any more. */
	synchronize_rcu();
}

static int probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct device *dev = &pdev->dev;
	struct xtp_device *xtp = devm_kzalloc(dev, sizeof(*xtp), GFP_KERNEL);
	int r;

	if (!xtp)
		return -ENOMEM;
	xtp->pdev = pdev;
	spin_lock_init(&xtp->lock);
	INIT_LIST_HEAD(&xtp->waiting);
	init_waitqueue_head(&xtp->drained);
	xtp_reset_init(xtp);
	pci_set_drvdata(pdev, xtp);
	r = set_up_bus(xtp) ?: read_caps(xtp);
	if (r)
		return r;
	/* Whatever it was at has nothing to do with us, and ends before it gets on the bus. */
	r = xtp_stop(xtp);
	if (r)
		return dev_err_probe(dev, r, "cannot be reset\n");
	xtp->queue = alloc_ordered_workqueue("xtent_pci", WQ_MEM_RECLAIM);
	if (!xtp->queue)
		return -ENOMEM;
	pci_set_master(pdev);
	r = xtp_vectors_init(xtp);
	if (r)
		goto no_vectors;
	r = set_up_dma(xtp) ?: xtp_interrupts_init(xtp);
	if (r)
		goto no_interrupts;
	r = xtp_go(xtp) ?: xtp_selftest(xtp);
	if (!r) {
		/* Without the test's keys. */
		xtp_quiesce(xtp);
		r = xtp_go(xtp);
	}
	if (r) {
		dev_err_probe(dev, r, "cannot be put to work\n");
		goto stop;
	}
	r = activate(xtp);
	if (r)
		goto stop;
	r = xtp_cipher_register(&xtp->caps);
	if (r) {
		dev_err_probe(dev, r, "its algorithms are not accepted\n");
		goto stop;
	}
	dev_info(dev, "level %u, %u of %u rings, %u key slots\n", xtp->caps.level, xtp->rings,
		 xtp->caps.rings, xtp->caps.slots);
	return 0;

stop:
	deactivate(xtp);
	xtp_quiesce(xtp);
	xtp_interrupts_exit(xtp);
no_interrupts:
	pci_free_irq_vectors(pdev);
no_vectors:
	pci_clear_master(pdev);
	destroy_workqueue(xtp->queue);
	return r;
}

/* Transforms may be there still, with requests: from now on these are software's. */
static void remove(struct pci_dev *pdev)
{
	struct xtp_device *xtp = pci_get_drvdata(pdev);

	deactivate(xtp);
	xtp_quiesce(xtp);
	xtp_interrupts_exit(xtp);
	pci_free_irq_vectors(pdev);
	pci_clear_master(pdev);
	destroy_workqueue(xtp->queue);
}

static void shutdown(struct pci_dev *pdev)
{
	struct xtp_device *xtp = pci_get_drvdata(pdev);

	xtp_quiesce(xtp);
	pci_clear_master(pdev);
}

/* While it sleeps, requests are software's. */
static int suspend(struct device *dev)
{
	xtp_quiesce(dev_get_drvdata(dev));
	return 0;
}

/* Keys are loaded again when they are needed. */
static int resume(struct device *dev)
{
	struct xtp_device *xtp = dev_get_drvdata(dev);
	int r = xtp_go(xtp);

	if (r)
		dev_err(dev, "is not started again: %d\n", r);
	return 0;
}

static DEFINE_SIMPLE_DEV_PM_OPS(pm_ops, suspend, resume);

static const struct pci_device_id ids[] = {
	{ PCI_DEVICE(XTENT_ENGINE_PCI_VENDOR, XTENT_ENGINE_PCI_DEVICE) },
	{ }
};
MODULE_DEVICE_TABLE(pci, ids);

static struct pci_driver driver = {
	.name = "xtent_pci",
	.id_table = ids,
	.probe = probe,
	.remove = remove,
	.shutdown = shutdown,
	.dev_groups = xtp_groups,
	.driver.pm = pm_sleep_ptr(&pm_ops),
};

static int __init start(void)
{
	int r;

	if (!xtp_watchdog) {
		pr_err("xtent_pci: watchdog is at least 1 ms\n");
		return -EINVAL;
	}
	r = xtp_cipher_init();
	if (r)
		return r;
	r = pci_register_driver(&driver);
	if (r)
		xtp_cipher_exit();
	return r;
}

static void __exit end(void)
{
	pci_unregister_driver(&driver);
	xtp_cipher_exit();
}

module_init(start);
module_exit(end);

MODULE_DESCRIPTION("AES co-processor that takes runs of data units, for the crypto API");
MODULE_LICENSE("GPL");
