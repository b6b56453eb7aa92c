// SPDX-License-Identifier: GPL-2.0
/* From sector numbers to IVs, as dm-crypt makes them. */
#include "compat.h"
#include "xtent.h"

/* The number that the IV of the sector at 512-byte unit `sector` holds. */
u64 xt_iv_number(const struct xt_target *xt, u64 sector)
{
	if (xt->options.iv_large_sectors)
		sector >>= xt->sector_shift;
	switch (xt->iv_mode) {
	case XT_IV_NONE:
		return 0;
	case XT_IV_PLAIN:
		return lower_32_bits(sector);
	case XT_IV_PLAIN64:
	case XT_IV_PLAIN64BE:
		break;
	}
	return sector;
}

/* That IV, as long as the cipher's. */
void xt_make_iv(const struct xt_target *xt, u64 sector, u8 *iv)
{
	u64 number = xt_iv_number(xt, sector);

	memset(iv, 0, xt->iv_size);
	if (xt->iv_mode == XT_IV_NONE)
		return;
	if (xt->iv_mode == XT_IV_PLAIN64BE)
		put_unaligned_be64(number, iv + xt->iv_size - sizeof(u64));
	else
		put_unaligned_le64(number, iv);
}
