// SPDX-License-Identifier: GPL-2.0
/* The drivers that have declared that they take runs of data units. */
#include <linux/export.h>
#include <linux/mutex.h>

#include "xtent.h"
#include "xtent_run.h"

static LIST_HEAD(drivers);
static DEFINE_MUTEX(drivers_lock);

static struct xtent_run_driver *find(const char *name)
{
	struct xtent_run_driver *driver;

	lockdep_assert_held(&drivers_lock);
	list_for_each_entry(driver, &drivers, list)
		if (!strcmp(driver->driver_name, name))
			return driver;
	return NULL;
}

int xtent_run_register(struct xtent_run_driver *driver)
{
	int r = 0;

	mutex_lock(&drivers_lock);
	if (find(driver->driver_name))
		r = -EEXIST;
	else
		list_add(&driver->list, &drivers);
	mutex_unlock(&drivers_lock);
	return r;
}
EXPORT_SYMBOL_GPL(xtent_run_register);

void xtent_run_unregister(struct xtent_run_driver *driver)
{
	mutex_lock(&drivers_lock);
	list_del(&driver->list);
	mutex_unlock(&drivers_lock);
}
EXPORT_SYMBOL_GPL(xtent_run_unregister);

/* Whether from now on this transform takes runs of such data units. */
bool xt_run_begin(struct crypto_skcipher *tfm, unsigned int data_unit_size)
{
	struct xtent_run_driver *driver;
	bool taken;

	mutex_lock(&drivers_lock);
	driver = find(crypto_skcipher_driver_name(tfm));
	taken = driver && !driver->set_data_unit_size(tfm, data_unit_size);
	mutex_unlock(&drivers_lock);
	return taken;
}
