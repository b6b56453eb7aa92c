/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The co-processor's registers and descriptors.
 * Written by rtl/engine/generate.py from registers.toml: change that.
 */
#ifndef XTENT_ENGINE_REGISTERS_H
#define XTENT_ENGINE_REGISTERS_H

/* what register ID reads */
#define XTENT_ENGINE_ID 0x544e5458
/* version of the layout: another one is refused */
#define XTENT_ENGINE_MAJOR 1
/* version of the layout */
#define XTENT_ENGINE_MINOR 0
/* of the simulated device */
#define XTENT_ENGINE_PCI_VENDOR 0x1d1d
/* of the simulated device */
#define XTENT_ENGINE_PCI_DEVICE 0x7874
/* bytes of BAR 0 */
#define XTENT_ENGINE_BAR_BYTES 0x2000
/* `XTNT`, byte 0 first */
#define XTENT_ENGINE_REG_ID 0x0
/* of this layout: software refuses another major version */
#define XTENT_ENGINE_REG_VERSION 0x4
/* adds what older software need not know */
#define XTENT_ENGINE_VERSION_MINOR_LOW 0
/* its width */
#define XTENT_ENGINE_VERSION_MINOR_BITS 16
/* changes what is there */
#define XTENT_ENGINE_VERSION_MAJOR_LOW 16
/* its width */
#define XTENT_ENGINE_VERSION_MAJOR_BITS 16
/* what is built */
#define XTENT_ENGINE_REG_CAP0 0x8
/* 1: ECB; 2: and XTS of one unit, whose tweak comes encrypted; 3: and runs */
#define XTENT_ENGINE_CAP0_LEVEL_LOW 0
/* its width */
#define XTENT_ENGINE_CAP0_LEVEL_BITS 4
/* 1 to 8 */
#define XTENT_ENGINE_CAP0_RINGS_LOW 4
/* its width */
#define XTENT_ENGINE_CAP0_RINGS_BITS 4
/* key slots, 1 to 32 */
#define XTENT_ENGINE_CAP0_SLOTS_LOW 8
/* its width */
#define XTENT_ENGINE_CAP0_SLOTS_BITS 8
/* of a beat of the memory bus: 4, 8 or 16 */
#define XTENT_ENGINE_CAP0_BUS_BYTES_LOW 16
/* its width */
#define XTENT_ENGINE_CAP0_BUS_BYTES_BITS 8
/* of the memory bus */
#define XTENT_ENGINE_CAP0_ADDRESS_BITS_LOW 24
/* its width */
#define XTENT_ENGINE_CAP0_ADDRESS_BITS_BITS 7
/* which ciphers */
#define XTENT_ENGINE_REG_CAP1 0xc
/* a bit for each cipher that is there */
#define XTENT_ENGINE_CAP1_CIPHERS_LOW 0
/* its width */
#define XTENT_ENGINE_CAP1_CIPHERS_BITS 16
/* of AES: bit 0 for 128, bit 1 for 256 */
#define XTENT_ENGINE_CAP1_KEY_BITS_LOW 16
/* its width */
#define XTENT_ENGINE_CAP1_KEY_BITS_BITS 2
/* unit sizes of runs in XTS: bit 0 for 512 bytes, to bit 3 for 4096 */
#define XTENT_ENGINE_CAP1_XTS_UNITS_LOW 20
/* its width */
#define XTENT_ENGINE_CAP1_XTS_UNITS_BITS 4
/* unit sizes of runs in the other ciphers */
#define XTENT_ENGINE_CAP1_OTHER_UNITS_LOW 24
/* its width */
#define XTENT_ENGINE_CAP1_OTHER_UNITS_BITS 4
/* limits of a request */
#define XTENT_ENGINE_REG_CAP2 0x10
/* of the most bytes in a request */
#define XTENT_ENGINE_CAP2_LOG2_BYTES_LOW 0
/* its width */
#define XTENT_ENGINE_CAP2_LOG2_BYTES_BITS 6
/* of the most entries in a list */
#define XTENT_ENGINE_CAP2_LOG2_ENTRIES_LOW 8
/* its width */
#define XTENT_ENGINE_CAP2_LOG2_ENTRIES_BITS 6
/* of the most entries in a ring */
#define XTENT_ENGINE_CAP2_LOG2_RING_LOW 16
/* its width */
#define XTENT_ENGINE_CAP2_LOG2_RING_BITS 4
/* 16-byte blocks in the largest unit of op XTS */
#define XTENT_ENGINE_CAP2_XTS_BLOCKS_LOW 20
/* its width */
#define XTENT_ENGINE_CAP2_XTS_BLOCKS_BITS 9
/* the clock */
#define XTENT_ENGINE_REG_CAP3 0x14
/* cycles that the coalescing timer takes for a microsecond */
#define XTENT_ENGINE_CAP3_CYCLES_PER_US_LOW 0
/* its width */
#define XTENT_ENGINE_CAP3_CYCLES_PER_US_BITS 16
/* commands; bit 0 keeps its value */
#define XTENT_ENGINE_REG_CTRL 0x20
/* rw: rings are served while it is set */
#define XTENT_ENGINE_CTRL_ENABLE_LOW 0
/* its width */
#define XTENT_ENGINE_CTRL_ENABLE_BITS 1
/* as after power-on, but that the bus sees every transfer end that it saw begin: rings, */
/* keys, data and registers are wiped, nothing more is written to memory */
#define XTENT_ENGINE_CTRL_RESET_LOW 1
/* its width */
#define XTENT_ENGINE_CTRL_RESET_BITS 1
/* the same at once for keys and data; software that only wants keys gone. Rings fault with */
/* `wiped` */
#define XTENT_ENGINE_CTRL_ZEROIZE_LOW 2
/* its width */
#define XTENT_ENGINE_CTRL_ZEROIZE_BITS 1
/* state of the device */
#define XTENT_ENGINE_REG_STATUS 0x24
/* registers other than this and ID to CAP3 may be used: no reset, no wiping is under way */
#define XTENT_ENGINE_STATUS_READY_LOW 0
/* its width */
#define XTENT_ENGINE_STATUS_READY_BITS 1
/* no request is under way */
#define XTENT_ENGINE_STATUS_IDLE_LOW 1
/* its width */
#define XTENT_ENGINE_STATUS_IDLE_BITS 1
/* a ring has faulted */
#define XTENT_ENGINE_STATUS_FAULT_LOW 2
/* its width */
#define XTENT_ENGINE_STATUS_FAULT_BITS 1
/* why there is an interrupt */
#define XTENT_ENGINE_REG_INT_STATUS 0x28
/* ring r has completions to be looked at */
#define XTENT_ENGINE_INT_STATUS_RINGS_LOW 0
/* its width */
#define XTENT_ENGINE_INT_STATUS_RINGS_BITS 8
/* a ring has faulted */
#define XTENT_ENGINE_INT_STATUS_FAULT_LOW 31
/* its width */
#define XTENT_ENGINE_INT_STATUS_FAULT_BITS 1
/* which of them interrupt; reads give the mask */
#define XTENT_ENGINE_REG_INT_SET 0x2c
/* lowest bit */
#define XTENT_ENGINE_INT_SET_RINGS_LOW 0
/* its width */
#define XTENT_ENGINE_INT_SET_RINGS_BITS 8
/* lowest bit */
#define XTENT_ENGINE_INT_SET_FAULT_LOW 31
/* its width */
#define XTENT_ENGINE_INT_SET_FAULT_BITS 1
/* which of them no longer interrupt; reads give the mask */
#define XTENT_ENGINE_REG_INT_CLEAR 0x30
/* lowest bit */
#define XTENT_ENGINE_INT_CLEAR_RINGS_LOW 0
/* its width */
#define XTENT_ENGINE_INT_CLEAR_RINGS_BITS 8
/* lowest bit */
#define XTENT_ENGINE_INT_CLEAR_FAULT_LOW 31
/* its width */
#define XTENT_ENGINE_INT_CLEAR_FAULT_BITS 1
/* the first fault since it was cleared, until any one is written to it */
#define XTENT_ENGINE_REG_FAULT 0x34
/* see the table of faults; 0: none */
#define XTENT_ENGINE_FAULT_CODE_LOW 0
/* its width */
#define XTENT_ENGINE_FAULT_CODE_BITS 8
/* the ring */
#define XTENT_ENGINE_FAULT_RING_LOW 8
/* its width */
#define XTENT_ENGINE_FAULT_RING_BITS 8
/* the address that the fault is about, if there is one */
#define XTENT_ENGINE_REG_FAULT_ADDR_LO 0x38
/* its upper half */
#define XTENT_ENGINE_REG_FAULT_ADDR_HI 0x3c
/* a key, byte 0 in bits 7:0 of the first; wiped by every KEY_CMD */
#define XTENT_ENGINE_REG_KEY_DATA 0x80
/* registers of that name */
#define XTENT_ENGINE_KEY_DATA_COUNT 32
/* does something to a slot */
#define XTENT_ENGINE_REG_KEY_CMD 0x100
/* which */
#define XTENT_ENGINE_KEY_CMD_SLOT_LOW 0
/* its width */
#define XTENT_ENGINE_KEY_CMD_SLOT_BITS 8
/* what the key is for; the table of ciphers has its length */
#define XTENT_ENGINE_KEY_CMD_CIPHER_LOW 8
/* its width */
#define XTENT_ENGINE_KEY_CMD_CIPHER_BITS 4
/* of AES: 0 for 128, 1 for 256 */
#define XTENT_ENGINE_KEY_CMD_KEY_BITS_LOW 12
/* its width */
#define XTENT_ENGINE_KEY_CMD_KEY_BITS_BITS 1
/* 1: load the slot from KEY_DATA; 2: clear it */
#define XTENT_ENGINE_KEY_CMD_COMMAND_LOW 16
/* its width */
#define XTENT_ENGINE_KEY_CMD_COMMAND_BITS 2
/* of the last KEY_CMD */
#define XTENT_ENGINE_REG_KEY_STATUS 0x104
/* not done yet: a slot in use is changed between two requests */
#define XTENT_ENGINE_KEY_STATUS_BUSY_LOW 0
/* its width */
#define XTENT_ENGINE_KEY_STATUS_BUSY_BITS 1
/* see the table of key results */
#define XTENT_ENGINE_KEY_STATUS_RESULT_LOW 4
/* its width */
#define XTENT_ENGINE_KEY_STATUS_RESULT_BITS 4
/* a bit for each slot that has a key */
#define XTENT_ENGINE_REG_KEY_SLOTS 0x108
/* commands to the counters */
#define XTENT_ENGINE_REG_COUNTER_CTRL 0x1000
/* copies all counters, of one cycle, to where they are read */
#define XTENT_ENGINE_COUNTER_CTRL_SNAPSHOT_LOW 0
/* its width */
#define XTENT_ENGINE_COUNTER_CTRL_SNAPSHOT_BITS 1
/* sets the running counters to zero */
#define XTENT_ENGINE_COUNTER_CTRL_CLEAR_LOW 1
/* its width */
#define XTENT_ENGINE_COUNTER_CTRL_CLEAR_BITS 1
/* the first ring's registers */
#define XTENT_ENGINE_RINGS_OFFSET 0x200
/* from one ring's registers to the next */
#define XTENT_ENGINE_RINGS_STRIDE 0x40
/* address of the submission ring, aligned to 64 bytes */
#define XTENT_ENGINE_RING_SQ_LO 0x0
/* its upper half */
#define XTENT_ENGINE_RING_SQ_HI 0x4
/* address of the completion ring, aligned to 64 bytes */
#define XTENT_ENGINE_RING_CQ_LO 0x8
/* its upper half */
#define XTENT_ENGINE_RING_CQ_HI 0xc
/* entries of both rings */
#define XTENT_ENGINE_RING_SIZE 0x10
/* 0 to CAP2.log2_ring */
#define XTENT_ENGINE_RING_SIZE_LOG2_LOW 0
/* its width */
#define XTENT_ENGINE_RING_SIZE_LOG2_BITS 4
/* turns the ring on and off */
#define XTENT_ENGINE_RING_CONTROL 0x14
/* on: all indices of the ring start at 0. Off: nothing more is fetched, and what was fetched */
/* completes; STATE.active tells when */
#define XTENT_ENGINE_RING_CONTROL_ENABLE_LOW 0
/* its width */
#define XTENT_ENGINE_RING_CONTROL_ENABLE_BITS 1
/* interrupt also when the ring runs empty */
#define XTENT_ENGINE_RING_CONTROL_WHEN_EMPTY_LOW 1
/* its width */
#define XTENT_ENGINE_RING_CONTROL_WHEN_EMPTY_BITS 1
/* doorbell: entries submitted since the ring was turned on, modulo 2^16; entry i lies at */
/* index i modulo the size */
#define XTENT_ENGINE_RING_TAIL 0x18
/* lowest bit */
#define XTENT_ENGINE_RING_TAIL_INDEX_LOW 0
/* its width */
#define XTENT_ENGINE_RING_TAIL_INDEX_BITS 16
/* doorbell: completions that software has read, modulo 2^16 */
#define XTENT_ENGINE_RING_CQ_HEAD 0x1c
/* lowest bit */
#define XTENT_ENGINE_RING_CQ_HEAD_INDEX_LOW 0
/* its width */
#define XTENT_ENGINE_RING_CQ_HEAD_INDEX_BITS 16
/* when completions interrupt: after the count, or the time after the first that has not, */
/* whichever is first */
#define XTENT_ENGINE_RING_COALESCE 0x20
/* 0 and 1: each completion */
#define XTENT_ENGINE_RING_COALESCE_COUNT_LOW 0
/* its width */
#define XTENT_ENGINE_RING_COALESCE_COUNT_BITS 8
/* microseconds; 0: no timer */
#define XTENT_ENGINE_RING_COALESCE_US_LOW 16
/* its width */
#define XTENT_ENGINE_RING_COALESCE_US_BITS 16
/* of the ring */
#define XTENT_ENGINE_RING_STATE 0x24
/* on, or with requests under way */
#define XTENT_ENGINE_RING_STATE_ACTIVE_LOW 0
/* its width */
#define XTENT_ENGINE_RING_STATE_ACTIVE_BITS 1
/* stopped by a fault; turned off and on again it starts anew */
#define XTENT_ENGINE_RING_STATE_FAULT_LOW 1
/* its width */
#define XTENT_ENGINE_RING_STATE_FAULT_BITS 1
/* the fault */
#define XTENT_ENGINE_RING_STATE_CODE_LOW 8
/* its width */
#define XTENT_ENGINE_RING_STATE_CODE_BITS 8
/* submissions fetched, modulo 2^16 */
#define XTENT_ENGINE_RING_STATE_FETCHED_LOW 16
/* its width */
#define XTENT_ENGINE_RING_STATE_FETCHED_BITS 16
/* completions written */
#define XTENT_ENGINE_RING_COMPLETED 0x28
/* modulo 2^16 */
#define XTENT_ENGINE_RING_COMPLETED_INDEX_LOW 0
/* its width */
#define XTENT_ENGINE_RING_COMPLETED_INDEX_BITS 16
/* cycles since the counters were cleared */
#define XTENT_ENGINE_REG_COUNTER_TOTAL 0x1008
/* the oldest request waits for its descriptor or a list */
#define XTENT_ENGINE_REG_COUNTER_FETCH 0x1010
/* the cipher waits for the oldest request's data */
#define XTENT_ENGINE_REG_COUNTER_SOURCE 0x1018
/* the cipher is at work on the oldest request */
#define XTENT_ENGINE_REG_COUNTER_CIPHER 0x1020
/* all of the oldest request is through the cipher, or the cipher waits for room; its data is */
/* being written */
#define XTENT_ENGINE_REG_COUNTER_DESTINATION 0x1028
/* the oldest request's completion is being written */
#define XTENT_ENGINE_REG_COUNTER_COMPLETION 0x1030
/* no request is under way, and an interrupt is not yet acknowledged */
#define XTENT_ENGINE_REG_COUNTER_INTERRUPT 0x1038
/* none of these */
#define XTENT_ENGINE_REG_COUNTER_IDLE 0x1040
/* completed */
#define XTENT_ENGINE_REG_COUNTER_REQUESTS 0x1048
/* of them, with another status than `DONE` */
#define XTENT_ENGINE_REG_COUNTER_FAILED 0x1050
/* units done; ECB counts blocks */
#define XTENT_ENGINE_REG_COUNTER_UNITS 0x1058
/* bytes done */
#define XTENT_ENGINE_REG_COUNTER_BYTES 0x1060
/* raised */
#define XTENT_ENGINE_REG_COUNTER_INTERRUPTS 0x1068
/* cycles in which an address to read from was not taken */
#define XTENT_ENGINE_REG_COUNTER_READ_WAITS 0x1070
/* cycles in which an address or data to write was not taken */
#define XTENT_ENGINE_REG_COUNTER_WRITE_WAITS 0x1078
/* counters */
#define XTENT_ENGINE_COUNTERS 15
/* A submission */
#define XTENT_ENGINE_SQE_BYTES 64
/* see the table of operations */
#define XTENT_ENGINE_SQE_OP 0
/* see the table of flags */
#define XTENT_ENGINE_SQE_FLAGS 1
/* key slot */
#define XTENT_ENGINE_SQE_SLOT 2
/* of the bytes in a unit: 4 for ECB, 9 to 12 for XTS and runs */
#define XTENT_ENGINE_SQE_LOG2_UNIT 3
/* runs: what is added to the tweak from one unit to the next; zero for the other operations */
#define XTENT_ENGINE_SQE_STEP 4
/* zero */
#define XTENT_ENGINE_SQE_ZERO0 6
/* how many; ECB: blocks; XTS: 1 */
#define XTENT_ENGINE_SQE_UNITS 8
/* zero */
#define XTENT_ENGINE_SQE_ZERO1 12
/* XTS: the encrypted tweak. Runs: the tweak of the first unit, byte 0 first, counted as a */
/* little-endian number. ECB: zero */
#define XTENT_ENGINE_SQE_TWEAK 16
/* address of the data, or of a list */
#define XTENT_ENGINE_SQE_SOURCE 32
/* the same; zero with flag IN_PLACE */
#define XTENT_ENGINE_SQE_DESTINATION 40
/* entries of the list; zero without one */
#define XTENT_ENGINE_SQE_SOURCE_ENTRIES 48
/* the same */
#define XTENT_ENGINE_SQE_DESTINATION_ENTRIES 52
/* comes back in the completion */
#define XTENT_ENGINE_SQE_COOKIE 56
/* A completion */
#define XTENT_ENGINE_CQE_BYTES 16
/* of the submission */
#define XTENT_ENGINE_CQE_COOKIE 0
/* units, counted from the first, whose data in the destination is right. On an error the */
/* request has left nothing else of its data in the destination */
#define XTENT_ENGINE_CQE_UNITS_DONE 8
/* see the table of statuses */
#define XTENT_ENGINE_CQE_STATUS 12
/* 1 in the first round through the ring, 0 in the second, and so on */
#define XTENT_ENGINE_CQE_PHASE 13
/* submissions that are done with, modulo 2^16 */
#define XTENT_ENGINE_CQE_SQ_HEAD 14
/* An entry of a list */
#define XTENT_ENGINE_ENTRY_BYTES 16
/* aligned to 16 bytes */
#define XTENT_ENGINE_ENTRY_ADDRESS 0
/* bytes: a multiple of 16, not zero */
#define XTENT_ENGINE_ENTRY_LENGTH 8
/* zero */
#define XTENT_ENGINE_ENTRY_ZERO 12
/* nothing; completes in its turn. All of it but op, flags (INTERRUPT) and cookie is zero */
#define XTENT_ENGINE_OP_NOP 0
/* blocks, each for itself (levels 1 to 3) */
#define XTENT_ENGINE_OP_ECB 1
/* one unit, not longer than CAP2.xts_blocks, with its tweak already encrypted (levels 2 and */
/* 3) */
#define XTENT_ENGINE_OP_XTS 2
/* consecutive units, whose tweaks the device counts (and encrypts) (level 3) */
#define XTENT_ENGINE_OP_RUN 3
/* decrypt */
#define XTENT_ENGINE_FLAG_DECRYPT 0
/* interrupt with this completion, whatever COALESCE says */
#define XTENT_ENGINE_FLAG_INTERRUPT 1
/* `source` is the address of a list */
#define XTENT_ENGINE_FLAG_SOURCE_LIST 2
/* `destination` is the address of a list */
#define XTENT_ENGINE_FLAG_DESTINATION_LIST 3
/* the destination is the source (and its list); DESTINATION_LIST is zero */
#define XTENT_ENGINE_FLAG_IN_PLACE 4
/* AES, for op ECB, and for op XTS (its data key). Key: AES's */
#define XTENT_ENGINE_CIPHER_ECB 0
/* XTS-AES, for op RUN. Key: data key, tweak key, which differ */
#define XTENT_ENGINE_CIPHER_XTS 1
/* FAST with BRW polynomials. Key: AES's */
#define XTENT_ENGINE_CIPHER_FAST_BRW 2
/* FAST with Horner's rule. Key: AES's */
#define XTENT_ENGINE_CIPHER_FAST_HORNER 3
/* HCTR2 with tweaks of 32 bytes, zeros above. Key: AES's */
#define XTENT_ENGINE_CIPHER_HCTR2 4
/* EME2-AES. Key: 128 bits K_AD, 128 bits K_ECB, AES's */
#define XTENT_ENGINE_CIPHER_EME2 5
/* AEZ-core of whole AES calls. Key: AES's */
#define XTENT_ENGINE_CIPHER_AEZ10 6
/* all units are done */
#define XTENT_ENGINE_STATUS_DONE 0
/* no such operation at this level */
#define XTENT_ENGINE_STATUS_OP 1
/* no units, or too many */
#define XTENT_ENGINE_STATUS_UNITS 2
/* a unit size that the operation or the cipher does not have */
#define XTENT_ENGINE_STATUS_UNIT 3
/* no such key slot, or it has no key */
#define XTENT_ENGINE_STATUS_SLOT 4
/* the slot's key is for another operation */
#define XTENT_ENGINE_STATUS_CIPHER 5
/* a list is shorter or longer than the run, too long or empty, or an entry is not as it has */
/* to be */
#define XTENT_ENGINE_STATUS_LIST 6
/* an address is not aligned to 16 bytes, or the request reaches beyond the address bits */
#define XTENT_ENGINE_STATUS_ALIGNMENT 7
/* something that has to be zero is not */
#define XTENT_ENGINE_STATUS_RESERVED 8
/* the tweak of a unit would pass 2^128 */
#define XTENT_ENGINE_STATUS_TWEAK 9
/* the bus reported an error on reading the source or a list */
#define XTENT_ENGINE_STATUS_READ 10
/* the bus reported an error on writing the destination */
#define XTENT_ENGINE_STATUS_WRITE 11
/* none */
#define XTENT_ENGINE_FAULT_NONE 0
/* the bus reported an error on reading a submission */
#define XTENT_ENGINE_FAULT_DESCRIPTOR 1
/* the bus reported an error on writing a completion: whether it arrived is not known */
#define XTENT_ENGINE_FAULT_COMPLETION 2
/* TAIL is further ahead than the ring is long, or went back; or CQ_HEAD passed the */
/* completions */
#define XTENT_ENGINE_FAULT_DOORBELL 3
/* after a failed request, what had been written beyond units_done could not be overwritten */
/* with zeros */
#define XTENT_ENGINE_FAULT_ERASE 4
/* keys and data were wiped by CTRL.zeroize */
#define XTENT_ENGINE_FAULT_WIPED 5
/* the ring was turned on with an address or size that cannot be */
#define XTENT_ENGINE_FAULT_RING 6
/* done */
#define XTENT_ENGINE_KEY_RESULT_DONE 0
/* no such slot */
#define XTENT_ENGINE_KEY_RESULT_SLOT 1
/* no such cipher here */
#define XTENT_ENGINE_KEY_RESULT_CIPHER 2
/* no such key length here */
#define XTENT_ENGINE_KEY_RESULT_LENGTH 3
/* XTS: both keys are the same (FIPS 140, IG C.I) */
#define XTENT_ENGINE_KEY_RESULT_EQUAL 4
/* no such command */
#define XTENT_ENGINE_KEY_RESULT_COMMAND 5

#endif
