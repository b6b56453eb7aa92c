// SPDX-License-Identifier: GPL-2.0
/* What happened so far: /sys/bus/pci/drivers/xtent_pci/<device>/xtent/. */
#include <linux/sysfs.h>

#include "device.h"

static struct xtp_device *from(struct device *dev)
{
	return pci_get_drvdata(to_pci_dev(dev));
}

#define COUNTER(name) \
static ssize_t name##_show(struct device *dev, struct device_attribute *attr, char *buf) \
{ \
	struct xtp_device *xtp = from(dev); \
	u64 value; \
\
	spin_lock_bh(&xtp->lock); \
	value = xtp->counters.name; \
	spin_unlock_bh(&xtp->lock); \
	return sysfs_emit(buf, "%llu\n", value); \
} \
static DEVICE_ATTR_RO(name)

COUNTER(requests);
COUNTER(runs);
COUNTER(bytes);
COUNTER(failed);
COUNTER(lost_interrupts);
COUNTER(key_loads);
COUNTER(resets);

/* Requests that software did, of all transforms. */
static ssize_t fallbacks_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%llu\n", xtp_fallbacks());
}
static DEVICE_ATTR_RO(fallbacks);

static ssize_t state_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	static const char *const names[] = {
		[XTP_OFF] = "off",
		[XTP_UP] = "up",
		[XTP_DRAINING] = "draining",
		[XTP_RESETTING] = "resetting",
		[XTP_DEAD] = "dead",
	};

	return sysfs_emit(buf, "%s\n", names[READ_ONCE(from(dev)->state)]);
}
static DEVICE_ATTR_RO(state);

static struct attribute *attributes[] = {
	&dev_attr_state.attr,
	&dev_attr_requests.attr,
	&dev_attr_runs.attr,
	&dev_attr_bytes.attr,
	&dev_attr_failed.attr,
	&dev_attr_fallbacks.attr,
	&dev_attr_lost_interrupts.attr,
	&dev_attr_key_loads.attr,
	&dev_attr_resets.attr,
	NULL
};

static const struct attribute_group group = {
	.name = "xtent",
	.attrs = attributes,
};

const struct attribute_group *xtp_groups[] = {
	&group,
#ifdef XTP_INSTANT
	&xtp_instant_group,
#endif
	NULL
};
