/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* From reset to main, and from an interrupt to its handler. */

	.section .start, "ax"
	.globl _start
_start:
	la	sp, stack_end
	la	t0, trap
	csrw	mtvec, t0
	/* External interrupts, all of which are the co-processor's; taken while mstatus.MIE is set. */
	li	t0, 1
	csrw	0xbc0, t0
	li	t0, 0x800
	csrw	mie, t0
	la	t0, bss_begin
	la	t1, bss_end
1:	sw	zero, 0(t0)
	addi	t0, t0, 4
	bltu	t0, t1, 1b
	call	main
	li	a0, 0
	j	finish

	.balign 4
trap:
	addi	sp, sp, -64
	sw	a0, 0(sp)
	/* When it came. */
	csrr	a0, mcycle
	sw	ra, 4(sp)
	sw	a1, 8(sp)
	sw	a2, 12(sp)
	sw	a3, 16(sp)
	sw	a4, 20(sp)
	sw	a5, 24(sp)
	sw	a6, 28(sp)
	sw	a7, 32(sp)
	sw	t0, 36(sp)
	sw	t1, 40(sp)
	sw	t2, 44(sp)
	sw	t3, 48(sp)
	sw	t4, 52(sp)
	sw	t5, 56(sp)
	sw	t6, 60(sp)
	csrr	t0, mcause
	bgez	t0, exception
	call	on_interrupt
	lw	a0, 0(sp)
	lw	ra, 4(sp)
	lw	a1, 8(sp)
	lw	a2, 12(sp)
	lw	a3, 16(sp)
	lw	a4, 20(sp)
	lw	a5, 24(sp)
	lw	a6, 28(sp)
	lw	a7, 32(sp)
	lw	t0, 36(sp)
	lw	t1, 40(sp)
	lw	t2, 44(sp)
	lw	t3, 48(sp)
	lw	t4, 52(sp)
	lw	t5, 56(sp)
	lw	t6, 60(sp)
	addi	sp, sp, 64
	mret

exception:
	/* The test bench shows where. */
	csrr	a0, mepc
	ori	a0, a0, 1

/* Ends the simulation, with an error unless a0 is 0. */
	.globl finish
finish:
	li	t0, 0xf0000000
	sw	a0, 0(t0)
1:	j	1b
