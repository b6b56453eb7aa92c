/* SPDX-License-Identifier: GPL-2.0 */
/* What cipher.c, which has the transforms, and request.c share. */
#ifndef XTENT_PCI_CIPHER_H
#define XTENT_PCI_CIPHER_H

#include <crypto/internal/skcipher.h>

#include "../compat.h"
#include "device.h"

struct cipher_ctx {
	struct crypto_skcipher *software;	/* synchronous */
	/* For ECB and op XTS; for runs. Each has an id if the device is to have it. */
	struct xtp_key block_key, run_key;
	struct xt_aes_key tweak_key;	/* for op XTS */
	unsigned int data_unit_size;	/* 0: a request is one data unit, if it does not say itself */
};

/* request.c */
int xtp_encrypt(struct skcipher_request *req);
int xtp_decrypt(struct skcipher_request *req);
unsigned int xtp_request_bytes(struct crypto_skcipher *software);
int xtp_requests_init(void);
void xtp_requests_exit(void);

#endif
