/* SPDX-License-Identifier: GPL-2.0-or-later */
//
// AES-XTS over several data units, for x86_64 CPUs with AVX
//
// A data unit is what gets a tweak of its own, e.g. a sector of a disk.  A short
// unit by itself keeps the AES units of a CPU waiting for most of its time:
// nothing can start before its tweak has been encrypted, and nothing follows its
// last block.  So the functions in this file go from unit to unit without a pause.
// The caller has had the tweaks of all units encrypted together, so what the first
// blocks of a unit need does not depend on the unit before, and out-of-order
// execution starts on them while that one's last blocks are still under way.
//
// There are three versions of the same code:
//
//  - AES-NI and AVX:                       16-byte vectors, one block each
//  - VAES, VPCLMULQDQ and AVX2:            32-byte vectors
//  - VAES, VPCLMULQDQ and AVX512BW and VL: 64-byte vectors, and 32 registers, so
//                                          that the round keys stay in registers

#include <linux/linkage.h>

// Offsets into struct aes_enckey and struct aes_key, see lib/crypto/x86/aes.h
#define NROUNDS_OFFSET		4
#define RNDKEYS_OFFSET		16
#define INV_RNDKEYS_OFFSET	256

.section .rodata
.p2align 4
	// The low half is what x^128 is worth, x^7 + x^2 + x + 1.  The high half
	// is the bit that moves from the low half of a mask to its high half when
	// a single mask is doubled.
.Lpoly:
	.quad	0x87, 1
	// Lane i of the first vector of masks is the tweak times x^i.  A shift
	// right by 64 gives zero.
.Llane_shl:
	.byte	0, 0, 1, 1, 2, 2, 3, 3
.Llane_shr:
	.byte	64, 64, 63, 63, 62, 62, 61, 61

.text

.macro	_name_vector	i
.if VL == 16
	.set	V\i,	%xmm\i
.elseif VL == 32
	.set	V\i,	%ymm\i
.else
	.set	V\i,	%zmm\i
.endif
.endm

.macro	_name_registers
.irp i, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
	_name_vector	\i
.endr
.if VL == 64
.irp i, 16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
	_name_vector	\i
.endr
.endif
	// Arguments
	.set	KEY,		%rdi	// later: 7 round keys before the last one
	.set	DST,		%rsi
	.set	SRC,		%rdx
	.set	UNIT_LEN,	%ecx
	.set	NUNITS,		%r8d
	.set	TWEAKS,		%r9
	// Others
	.set	NROUNDS,	%eax
	.set	LEFT,		%r10d	// bytes of the unit
	.set	TMP,		%r11d
	.set	TMP64,		%r11

	// V0-V3 hold the blocks under way, V4-V7 their masks: a group.
	.set	MASK0,		V4
	.set	MASK1,		V5
	.set	MASK2,		V6
	.set	MASK3,		V7
	.set	MASK0_XMM,	%xmm4
	// V8 and V9 hold temporary values.
	.set	POLY,		V10
	.set	POLY_XMM,	%xmm10
	.set	KEY0,		V11
	.set	KEY0_XMM,	%xmm11
	// The last round key with a mask, for each block under way
	.set	LAST0,		V12
	.set	LAST1,		V13
	.set	LAST2,		V14
	.set	LAST3,		V15
.if VL == 64
	.set	LANE_SHL,	V30
	.set	LANE_SHR,	V31
.endif
.endm

// Move a vector from memory to a register or back.
.macro	_mov	src, dst
.if VL == 64
	vmovdqu8	\src, \dst
.else
	vmovdqu		\src, \dst
.endif
.endm

.macro	_xor	a, b, dst
.if VL == 64
	vpxord		\a, \b, \dst
.else
	vpxor		\a, \b, \dst
.endif
.endm

// dst ^= a ^ b
.macro	_xor3	a, b, dst
.if VL == 64
	vpternlogd	$0x96, \a, \b, \dst
.else
	vpxor		\a, \dst, \dst
	vpxor		\b, \dst, \dst
.endif
.endm

// Copy 16 bytes of memory to all lanes.
.macro	_broadcast	src, dst
.if VL == 16
	vmovdqu		\src, \dst
.elseif VL == 32
	vbroadcasti128	\src, \dst
.else
	vbroadcasti32x4	\src, \dst
.endif
.endm

// Multiply one mask by x.  tmp must not be src or dst.
.macro	_double		src, tmp, dst
	vpshufd		$0x13, \src, \tmp
	vpsrad		$31, \tmp, \tmp
	vpand		POLY_XMM, \tmp, \tmp
	vpaddq		\src, \src, \dst
	vpxor		\tmp, \dst, \dst
.endm

// Multiply all masks of a vector by x^n, 0 < n < 64.  Clobbers V8 and V9.  What
// leaves the top of a mask is n bits, and comes back times .Lpoly.  Shifts by
// whole bytes can be those of 128-bit lanes; else the 64-bit halves are shifted.
.macro	_multiply	n, src, dst
.if \n % 8 == 0
	vpsrldq		$16 - \n / 8, \src, V8
	vpclmulqdq	$0x00, POLY, V8, V8
	vpslldq		$\n / 8, \src, \dst
	_xor		V8, \dst, \dst
.else
	vpsrlq		$64 - \n, \src, V8
	vpclmulqdq	$0x01, POLY, V8, V9
	vpslldq		$8, V8, V8
	vpsllq		$\n, \src, \dst
	_xor3		V8, V9, \dst
.endif
.endm

// The masks of the first group of a unit, from its tweak at (TWEAKS)
.macro	_first_masks
.if VL == 16
	vmovdqu		(TWEAKS), MASK0
	_double		MASK0, V8, MASK1
	_double		MASK1, V8, MASK2
	_double		MASK2, V8, MASK3
.elseif VL == 32
	vmovdqu		(TWEAKS), MASK0_XMM
	_double		MASK0_XMM, %xmm8, %xmm9
	vinserti128	$1, %xmm9, MASK0, MASK0
	_multiply	2, MASK0, MASK1
	_multiply	4, MASK0, MASK2
	_multiply	6, MASK0, MASK3
.else
	vbroadcasti32x4	(TWEAKS), MASK0
	vpsrlvq		LANE_SHR, MASK0, V8
	vpclmulqdq	$0x01, POLY, V8, V9
	vpslldq		$8, V8, V8
	vpsllvq		LANE_SHL, MASK0, MASK0
	_xor3		V8, V9, MASK0
	_multiply	4, MASK0, MASK1
	_multiply	8, MASK0, MASK2
	_multiply	12, MASK0, MASK3
.endif
.endm

// The round keys are numbered after the registers that have them if there are 32:
// 16 to 29.  AES-192 lacks the first two and AES-128 the first four.  In memory,
// KEY points to number 22.
.macro	_load_keys	offset, in_registers
	movl		NROUNDS_OFFSET(KEY), NROUNDS
	mov		NROUNDS, TMP
	shl		$4, TMP
	_broadcast	\offset(KEY), KEY0
	lea		\offset-7*16(KEY, TMP64), KEY
	.set		KEYS_IN_REGISTERS, \in_registers
.if KEYS_IN_REGISTERS
	cmp		$12, NROUNDS
	jb		.L10_rounds\@
	je		.L12_rounds\@
.irp i, 16,17
	_broadcast	(\i-22)*16(KEY), V\i
.endr
.L12_rounds\@:
.irp i, 18,19
	_broadcast	(\i-22)*16(KEY), V\i
.endr
.L10_rounds\@:
.irp i, 20,21,22,23,24,25,26,27,28,29
	_broadcast	(\i-22)*16(KEY), V\i
.endr
.endif
.endm

.macro	_aes	enc, key, data
.if \enc
	vaesenc		\key, \data, \data
.else
	vaesdec		\key, \data, \data
.endif
.endm

.macro	_aes_last	enc, key, data
.if \enc
	vaesenclast	\key, \data, \data
.else
	vaesdeclast	\key, \data, \data
.endif
.endm

// Round i of the vectors \data.  Clobbers V8.
.macro	_round	enc, i, data:vararg
.if KEYS_IN_REGISTERS
.irp v, \data
	_aes		\enc, V\i, \v
.endr
.else
	_broadcast	(\i-22)*16(KEY), V8
.irp v, \data
	_aes		\enc, V8, \v
.endr
.endif
.endm

// Round i of the block in xmm0
.macro	_single_round	enc, i, unused:vararg
	_aes		\enc, (\i-22)*16(KEY), %xmm0
.endm

// All rounds but the last.  Between them, in this order, \between is done for 0 to 3.
.macro	_rounds	enc, round, between, data:vararg
	cmp		$12, NROUNDS
	jb		.L10_rounds\@
	je		.L12_rounds\@
	\round		\enc, 16, \data
	\round		\enc, 17, \data
.L12_rounds\@:
	\round		\enc, 18, \data
	\round		\enc, 19, \data
.L10_rounds\@:
	\round		\enc, 20, \data
	\between	0
	\round		\enc, 21, \data
	\round		\enc, 22, \data
	\between	1
	\round		\enc, 23, \data
	\round		\enc, 24, \data
	\between	2
	\round		\enc, 25, \data
	\round		\enc, 26, \data
	\between	3
	\round		\enc, 27, \data
	\round		\enc, 28, \data
.endm

.macro	_nothing	i
.endm

// The last round key, for all lanes, in \dst
.macro	_last_key	dst
.if KEYS_IN_REGISTERS
	vmovdqa64	V29, \dst
.else
	_broadcast	7*16(KEY), \dst
.endif
.endm

// Load vector i of a group, and add its mask and the first round key.
.macro	_load	i
.if VL == 64
	vmovdqa64	KEY0, V\i
	vpternlogd	$0x96, \i*VL(SRC), MASK\i, V\i
.else
	_xor		\i*VL(SRC), KEY0, V\i
	_xor		MASK\i, V\i, V\i
.endif
.endm

// Make mask i of the next group, from those of this one.  This group's goes into the
// last round key, since the last round ends with an XOR of it.  Clobbers V8 and V9.
.macro	_next_mask	i
	_last_key	V8
	_xor		MASK\i, V8, LAST\i
.if VL > 16
	_multiply	4*VL/16, MASK\i, MASK\i
.elseif \i == 0
	_double		MASK3, V8, MASK0
.elseif \i == 1
	_double		MASK0, V8, MASK1
.elseif \i == 2
	_double		MASK1, V8, MASK2
.else
	_double		MASK2, V8, MASK3
.endif
.endm

.macro	_crypt_units	enc
	_name_registers
.if VL == 64
	vpmovzxbq	.Llane_shl(%rip), LANE_SHL
	vpmovzxbq	.Llane_shr(%rip), LANE_SHR
.endif
	_broadcast	.Lpoly(%rip), POLY
.if \enc
	_load_keys	RNDKEYS_OFFSET, (VL == 64)
.else
	_load_keys	INV_RNDKEYS_OFFSET, (VL == 64)
.endif

.Lunit\@:
	_first_masks
	mov		UNIT_LEN, LEFT
	sub		$4*VL, LEFT
	jb		.Lrest_of_unit\@

.Lgroup\@:
.irp i, 0,1,2,3
	_load		\i
.endr
	_rounds		\enc, _round, _next_mask, V0, V1, V2, V3
	_aes_last	\enc, LAST0, V0
	_aes_last	\enc, LAST1, V1
	_aes_last	\enc, LAST2, V2
	_aes_last	\enc, LAST3, V3
	_mov		V0, 0*VL(DST)
	_mov		V1, 1*VL(DST)
	_mov		V2, 2*VL(DST)
	_mov		V3, 3*VL(DST)
	sub		$-4*VL, SRC
	sub		$-4*VL, DST
	sub		$4*VL, LEFT
	jae		.Lgroup\@

.Lrest_of_unit\@:
	add		$4*VL, LEFT
	jnz		.Lsingle_blocks\@
.Lunit_done\@:
	// What the next blocks of this unit would need
	vmovdqu		MASK0_XMM, (TWEAKS)
	add		$16, TWEAKS
	dec		NUNITS
	jnz		.Lunit\@
.if VL > 16
	vzeroupper
.endif
	RET

	// The unit is no multiple of a group: a block at a time, which
	// out-of-order execution does several of together.
.Lsingle_blocks\@:
	vmovdqu		(SRC), %xmm0
	vpxor		MASK0_XMM, %xmm0, %xmm0
	vpxor		KEY0_XMM, %xmm0, %xmm0
	_rounds		\enc, _single_round, _nothing
	vpxor		7*16(KEY), MASK0_XMM, %xmm8
	_aes_last	\enc, %xmm8, %xmm0
	vmovdqu		%xmm0, (DST)
	_double		MASK0_XMM, %xmm8, MASK0_XMM
	add		$16, SRC
	add		$16, DST
	sub		$16, LEFT
	jnz		.Lsingle_blocks\@
	jmp		.Lunit_done\@
.endm

// Encrypt 8 tweaks, which fill the vectors \data.
.macro	_encrypt_8_tweaks	data:vararg
	.set		POS, 0
.irp v, \data
	_xor		POS(TWEAKS), KEY0, \v
	.set		POS, POS + VL
.endr
	_rounds		1, _round, _nothing, \data
	_last_key	V8
	.set		POS, 0
.irp v, \data
	vaesenclast	V8, \v, \v
	_mov		\v, POS(TWEAKS)
	.set		POS, POS + VL
.endr
.endm

.macro	_encrypt_tweaks
	_name_registers
	.set		TWEAKS, %rsi
	.set		N, %edx
	_load_keys	RNDKEYS_OFFSET, 0
	sub		$8, N
	jb		.Lless_than_8\@
.L8_tweaks\@:
.if VL == 16
	_encrypt_8_tweaks V0, V1, V2, V3, V4, V5, V6, V7
.elseif VL == 32
	_encrypt_8_tweaks V0, V1, V2, V3
.else
	_encrypt_8_tweaks V0, V1
.endif
	add		$8*16, TWEAKS
	sub		$8, N
	jae		.L8_tweaks\@
.Lless_than_8\@:
	add		$8, N
	jz		.Ldone\@
.Lsingle_tweaks\@:
	vpxor		(TWEAKS), KEY0_XMM, %xmm0
	_rounds		1, _single_round, _nothing
	vaesenclast	7*16(KEY), %xmm0, %xmm0
	vmovdqu		%xmm0, (TWEAKS)
	add		$16, TWEAKS
	dec		N
	jnz		.Lsingle_tweaks\@
.Ldone\@:
.if VL > 16
	vzeroupper
.endif
	RET
.endm

// void aes_xts_encrypt_tweaks_*(const struct aes_enckey *tweak_key,
//				 u8 (*tweaks)[AES_BLOCK_SIZE], unsigned int n);
//
// Encrypt n > 0 tweaks in place.
//
// void aes_xts_*crypt_units_*(const struct aes_key *key, u8 *dst, const u8 *src,
//			       unsigned int unit_len, unsigned int nunits,
//			       u8 (*tweaks)[AES_BLOCK_SIZE]);
//
// En- or decrypt nunits > 0 units of unit_len bytes, a positive multiple of 16, that
// lie one after another, given their encrypted tweaks.  A tweak then is what the
// unit would go on with.
.macro	_define_functions	suffix
SYM_FUNC_START(aes_xts_encrypt_tweaks_\suffix)
	_encrypt_tweaks
SYM_FUNC_END(aes_xts_encrypt_tweaks_\suffix)
SYM_FUNC_START(aes_xts_encrypt_units_\suffix)
	_crypt_units	1
SYM_FUNC_END(aes_xts_encrypt_units_\suffix)
SYM_FUNC_START(aes_xts_decrypt_units_\suffix)
	_crypt_units	0
SYM_FUNC_END(aes_xts_decrypt_units_\suffix)
.endm

.set	VL, 16
_define_functions	aesni_avx
.set	VL, 32
_define_functions	vaes_avx2
.set	VL, 64
_define_functions	vaes_avx512
