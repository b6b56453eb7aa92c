/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How a driver of the crypto API says that it takes runs: many data units in one
 * request. Nothing in a stock kernel tells, and a stock driver takes a longer
 * request for one longer data unit, so only who declares it here gets runs.
 *
 * Once its data unit size is set, a transform takes requests of any number of
 * whole data units. The request's IV is that of the first one; each further data
 * unit has the one before plus 1, the IV being a little-endian number of all its
 * bytes. (For the crypto API itself, "multi-data-unit requests" have been proposed, in
 * the last versions with the size on each request instead of the transform. When that is
 * there, this is not needed any more.) What the IV's memory holds afterwards is the driver's choice. No
 * data unit lies in two entries of a scatterlist.
 */
#ifndef XTENT_RUN_H
#define XTENT_RUN_H

#include <linux/list.h>
#include <crypto/skcipher.h>

struct xtent_run_driver {
	const char *driver_name;	/* cra_driver_name, in full */
	/*
	 * Of this transform, from its next request on, in bytes; called once. If it
	 * says no, the transform stays as it was, and gets one request a data unit.
	 */
	int (*set_data_unit_size)(struct crypto_skcipher *tfm, unsigned int size);
	struct list_head list;		/* dm-xtent's */
};

/* -EEXIST if there is one of that name. Tables made before do not change. */
int xtent_run_register(struct xtent_run_driver *driver);

/* When it returns, the driver is called no more; transforms keep their size. */
void xtent_run_unregister(struct xtent_run_driver *driver);

#endif
