// SPDX-License-Identifier: GPL-2.0
/*
 * XTS on AES-NI by AVX's forms, as in xts_aesni_avx.c, its masks by products: faster where AES
 * takes the units that shift, and products have one of their own.
 */
#define ISA aesni_products
#define MASKS_BY_PRODUCTS 1
#define FORGET() _mm256_zeroall()

#include "xts_one_block.h"
