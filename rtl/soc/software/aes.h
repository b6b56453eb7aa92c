/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* AES with tables, as CPUs without instructions for it have it. Not in constant time: for counting only. */
#ifndef SOC_AES_H
#define SOC_AES_H

#include <linux/types.h>

enum { AES_DATA, AES_TWEAK, AES_KEYS };

/* Before all others. */
void aes_init(void);
void aes_set_key(int which, const u8 *bytes, unsigned int bits);
void aes_encrypt(int which, u8 *block);
void aes_decrypt(int which, u8 *block);

#endif
