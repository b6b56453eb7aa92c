// SPDX-License-Identifier: GPL-2.0
/*
 * XTS on AES-NI by AVX's forms of these instructions: they leave their operands
 * as they are, so that the compiler copies and stores fewer vectors.
 */
#define ISA aesni_avx
#define MASKS_BY_PRODUCTS 0
#define FORGET() _mm256_zeroall()

#include "xts_one_block.h"
