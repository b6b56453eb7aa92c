// SPDX-License-Identifier: MIT OR Apache-2.0

//! The co-processor's registers and descriptors, as `rtl/engine/README.md` has them.
//!
//! Written by rtl/engine/generate.py from registers.toml: change that.

/// what register ID reads
pub const ID: u32 = 0x544e_5458;
/// version of the layout: another one is refused
pub const MAJOR: u16 = 1;
/// version of the layout
pub const MINOR: u16 = 0;
/// of the simulated device
pub const PCI_VENDOR: u16 = 0x1d1d;
/// of the simulated device
pub const PCI_DEVICE: u16 = 0x7874;
/// bytes of BAR 0
pub const BAR_BYTES: u32 = 0x2000;
/// `XTNT`, byte 0 first
pub const REG_ID: u32 = 0x0;
/// of this layout: software refuses another major version
pub const REG_VERSION: u32 = 0x4;
/// adds what older software need not know
pub const VERSION_MINOR_LOW: u32 = 0;
/// its width
pub const VERSION_MINOR_BITS: u32 = 16;
/// changes what is there
pub const VERSION_MAJOR_LOW: u32 = 16;
/// its width
pub const VERSION_MAJOR_BITS: u32 = 16;
/// what is built
pub const REG_CAP0: u32 = 0x8;
/// 1: ECB; 2: and XTS of one unit, whose tweak comes encrypted; 3: and runs
pub const CAP0_LEVEL_LOW: u32 = 0;
/// its width
pub const CAP0_LEVEL_BITS: u32 = 4;
/// 1 to 8
pub const CAP0_RINGS_LOW: u32 = 4;
/// its width
pub const CAP0_RINGS_BITS: u32 = 4;
/// key slots, 1 to 32
pub const CAP0_SLOTS_LOW: u32 = 8;
/// its width
pub const CAP0_SLOTS_BITS: u32 = 8;
/// of a beat of the memory bus: 4, 8 or 16
pub const CAP0_BUS_BYTES_LOW: u32 = 16;
/// its width
pub const CAP0_BUS_BYTES_BITS: u32 = 8;
/// of the memory bus
pub const CAP0_ADDRESS_BITS_LOW: u32 = 24;
/// its width
pub const CAP0_ADDRESS_BITS_BITS: u32 = 7;
/// which ciphers
pub const REG_CAP1: u32 = 0xc;
/// a bit for each cipher that is there
pub const CAP1_CIPHERS_LOW: u32 = 0;
/// its width
pub const CAP1_CIPHERS_BITS: u32 = 16;
/// of AES: bit 0 for 128, bit 1 for 256
pub const CAP1_KEY_BITS_LOW: u32 = 16;
/// its width
pub const CAP1_KEY_BITS_BITS: u32 = 2;
/// unit sizes of runs in XTS: bit 0 for 512 bytes, to bit 3 for 4096
pub const CAP1_XTS_UNITS_LOW: u32 = 20;
/// its width
pub const CAP1_XTS_UNITS_BITS: u32 = 4;
/// unit sizes of runs in the other ciphers
pub const CAP1_OTHER_UNITS_LOW: u32 = 24;
/// its width
pub const CAP1_OTHER_UNITS_BITS: u32 = 4;
/// limits of a request
pub const REG_CAP2: u32 = 0x10;
/// of the most bytes in a request
pub const CAP2_LOG2_BYTES_LOW: u32 = 0;
/// its width
pub const CAP2_LOG2_BYTES_BITS: u32 = 6;
/// of the most entries in a list
pub const CAP2_LOG2_ENTRIES_LOW: u32 = 8;
/// its width
pub const CAP2_LOG2_ENTRIES_BITS: u32 = 6;
/// of the most entries in a ring
pub const CAP2_LOG2_RING_LOW: u32 = 16;
/// its width
pub const CAP2_LOG2_RING_BITS: u32 = 4;
/// 16-byte blocks in the largest unit of op XTS
pub const CAP2_XTS_BLOCKS_LOW: u32 = 20;
/// its width
pub const CAP2_XTS_BLOCKS_BITS: u32 = 9;
/// the clock
pub const REG_CAP3: u32 = 0x14;
/// cycles that the coalescing timer takes for a microsecond
pub const CAP3_CYCLES_PER_US_LOW: u32 = 0;
/// its width
pub const CAP3_CYCLES_PER_US_BITS: u32 = 16;
/// commands; bit 0 keeps its value
pub const REG_CTRL: u32 = 0x20;
/// rw: rings are served while it is set
pub const CTRL_ENABLE_LOW: u32 = 0;
/// its width
pub const CTRL_ENABLE_BITS: u32 = 1;
/// as after power-on, but that the bus sees every transfer end that it saw begin: rings,
/// keys, data and registers are wiped, nothing more is written to memory
pub const CTRL_RESET_LOW: u32 = 1;
/// its width
pub const CTRL_RESET_BITS: u32 = 1;
/// the same at once for keys and data; software that only wants keys gone. Rings fault with
/// `wiped`
pub const CTRL_ZEROIZE_LOW: u32 = 2;
/// its width
pub const CTRL_ZEROIZE_BITS: u32 = 1;
/// state of the device
pub const REG_STATUS: u32 = 0x24;
/// registers other than this and ID to CAP3 may be used: no reset, no wiping is under way
pub const STATUS_READY_LOW: u8 = 0;
/// its width
pub const STATUS_READY_BITS: u8 = 1;
/// no request is under way
pub const STATUS_IDLE_LOW: u8 = 1;
/// its width
pub const STATUS_IDLE_BITS: u8 = 1;
/// a ring has faulted
pub const STATUS_FAULT_LOW: u8 = 2;
/// its width
pub const STATUS_FAULT_BITS: u8 = 1;
/// why there is an interrupt
pub const REG_INT_STATUS: u32 = 0x28;
/// ring r has completions to be looked at
pub const INT_STATUS_RINGS_LOW: u32 = 0;
/// its width
pub const INT_STATUS_RINGS_BITS: u32 = 8;
/// a ring has faulted
pub const INT_STATUS_FAULT_LOW: u32 = 31;
/// its width
pub const INT_STATUS_FAULT_BITS: u32 = 1;
/// which of them interrupt; reads give the mask
pub const REG_INT_SET: u32 = 0x2c;
/// lowest bit
pub const INT_SET_RINGS_LOW: u32 = 0;
/// its width
pub const INT_SET_RINGS_BITS: u32 = 8;
/// lowest bit
pub const INT_SET_FAULT_LOW: u32 = 31;
/// its width
pub const INT_SET_FAULT_BITS: u32 = 1;
/// which of them no longer interrupt; reads give the mask
pub const REG_INT_CLEAR: u32 = 0x30;
/// lowest bit
pub const INT_CLEAR_RINGS_LOW: u32 = 0;
/// its width
pub const INT_CLEAR_RINGS_BITS: u32 = 8;
/// lowest bit
pub const INT_CLEAR_FAULT_LOW: u32 = 31;
/// its width
pub const INT_CLEAR_FAULT_BITS: u32 = 1;
/// the first fault since it was cleared, until any one is written to it
pub const REG_FAULT: u32 = 0x34;
/// see the table of faults; 0: none
pub const FAULT_CODE_LOW: u8 = 0;
/// its width
pub const FAULT_CODE_BITS: u8 = 8;
/// the ring
pub const FAULT_RING_LOW: u8 = 8;
/// its width
pub const FAULT_RING_BITS: u8 = 8;
/// the address that the fault is about, if there is one
pub const REG_FAULT_ADDR_LO: u32 = 0x38;
/// its upper half
pub const REG_FAULT_ADDR_HI: u32 = 0x3c;
/// a key, byte 0 in bits 7:0 of the first; wiped by every KEY_CMD
pub const REG_KEY_DATA: u32 = 0x80;
/// registers of that name
pub const KEY_DATA_COUNT: usize = 32;
/// does something to a slot
pub const REG_KEY_CMD: u32 = 0x100;
/// which
pub const KEY_CMD_SLOT_LOW: u32 = 0;
/// its width
pub const KEY_CMD_SLOT_BITS: u32 = 8;
/// what the key is for; the table of ciphers has its length
pub const KEY_CMD_CIPHER_LOW: u32 = 8;
/// its width
pub const KEY_CMD_CIPHER_BITS: u32 = 4;
/// of AES: 0 for 128, 1 for 256
pub const KEY_CMD_KEY_BITS_LOW: u32 = 12;
/// its width
pub const KEY_CMD_KEY_BITS_BITS: u32 = 1;
/// 1: load the slot from KEY_DATA; 2: clear it
pub const KEY_CMD_COMMAND_LOW: u32 = 16;
/// its width
pub const KEY_CMD_COMMAND_BITS: u32 = 2;
/// of the last KEY_CMD
pub const REG_KEY_STATUS: u32 = 0x104;
/// not done yet: a slot in use is changed between two requests
pub const KEY_STATUS_BUSY_LOW: u32 = 0;
/// its width
pub const KEY_STATUS_BUSY_BITS: u32 = 1;
/// see the table of key results
pub const KEY_STATUS_RESULT_LOW: u32 = 4;
/// its width
pub const KEY_STATUS_RESULT_BITS: u32 = 4;
/// a bit for each slot that has a key
pub const REG_KEY_SLOTS: u32 = 0x108;
/// commands to the counters
pub const REG_COUNTER_CTRL: u32 = 0x1000;
/// copies all counters, of one cycle, to where they are read
pub const COUNTER_CTRL_SNAPSHOT_LOW: u32 = 0;
/// its width
pub const COUNTER_CTRL_SNAPSHOT_BITS: u32 = 1;
/// sets the running counters to zero
pub const COUNTER_CTRL_CLEAR_LOW: u32 = 1;
/// its width
pub const COUNTER_CTRL_CLEAR_BITS: u32 = 1;
/// the first ring's registers
pub const RINGS_OFFSET: u32 = 0x200;
/// from one ring's registers to the next
pub const RINGS_STRIDE: u32 = 0x40;
/// address of the submission ring, aligned to 64 bytes
pub const RING_SQ_LO: u32 = 0x0;
/// its upper half
pub const RING_SQ_HI: u32 = 0x4;
/// address of the completion ring, aligned to 64 bytes
pub const RING_CQ_LO: u32 = 0x8;
/// its upper half
pub const RING_CQ_HI: u32 = 0xc;
/// entries of both rings
pub const RING_SIZE: u32 = 0x10;
/// 0 to CAP2.log2_ring
pub const RING_SIZE_LOG2_LOW: u32 = 0;
/// its width
pub const RING_SIZE_LOG2_BITS: u32 = 4;
/// turns the ring on and off
pub const RING_CONTROL: u32 = 0x14;
/// on: all indices of the ring start at 0. Off: nothing more is fetched, and what was fetched
/// completes; STATE.active tells when
pub const RING_CONTROL_ENABLE_LOW: u32 = 0;
/// its width
pub const RING_CONTROL_ENABLE_BITS: u32 = 1;
/// interrupt also when the ring runs empty
pub const RING_CONTROL_WHEN_EMPTY_LOW: u32 = 1;
/// its width
pub const RING_CONTROL_WHEN_EMPTY_BITS: u32 = 1;
/// doorbell: entries submitted since the ring was turned on, modulo 2^16; entry i lies at
/// index i modulo the size
pub const RING_TAIL: u32 = 0x18;
/// lowest bit
pub const RING_TAIL_INDEX_LOW: u32 = 0;
/// its width
pub const RING_TAIL_INDEX_BITS: u32 = 16;
/// doorbell: completions that software has read, modulo 2^16
pub const RING_CQ_HEAD: u32 = 0x1c;
/// lowest bit
pub const RING_CQ_HEAD_INDEX_LOW: u32 = 0;
/// its width
pub const RING_CQ_HEAD_INDEX_BITS: u32 = 16;
/// when completions interrupt: after the count, or the time after the first that has not,
/// whichever is first
pub const RING_COALESCE: u32 = 0x20;
/// 0 and 1: each completion
pub const RING_COALESCE_COUNT_LOW: u32 = 0;
/// its width
pub const RING_COALESCE_COUNT_BITS: u32 = 8;
/// microseconds; 0: no timer
pub const RING_COALESCE_US_LOW: u32 = 16;
/// its width
pub const RING_COALESCE_US_BITS: u32 = 16;
/// of the ring
pub const RING_STATE: u32 = 0x24;
/// on, or with requests under way
pub const RING_STATE_ACTIVE_LOW: u32 = 0;
/// its width
pub const RING_STATE_ACTIVE_BITS: u32 = 1;
/// stopped by a fault; turned off and on again it starts anew
pub const RING_STATE_FAULT_LOW: u32 = 1;
/// its width
pub const RING_STATE_FAULT_BITS: u32 = 1;
/// the fault
pub const RING_STATE_CODE_LOW: u32 = 8;
/// its width
pub const RING_STATE_CODE_BITS: u32 = 8;
/// submissions fetched, modulo 2^16
pub const RING_STATE_FETCHED_LOW: u32 = 16;
/// its width
pub const RING_STATE_FETCHED_BITS: u32 = 16;
/// completions written
pub const RING_COMPLETED: u32 = 0x28;
/// modulo 2^16
pub const RING_COMPLETED_INDEX_LOW: u32 = 0;
/// its width
pub const RING_COMPLETED_INDEX_BITS: u32 = 16;
/// cycles since the counters were cleared
pub const REG_COUNTER_TOTAL: u32 = 0x1008;
/// the oldest request waits for its descriptor or a list
pub const REG_COUNTER_FETCH: u32 = 0x1010;
/// the cipher waits for the oldest request's data
pub const REG_COUNTER_SOURCE: u32 = 0x1018;
/// the cipher is at work on the oldest request
pub const REG_COUNTER_CIPHER: u32 = 0x1020;
/// all of the oldest request is through the cipher, or the cipher waits for room; its data is
/// being written
pub const REG_COUNTER_DESTINATION: u32 = 0x1028;
/// the oldest request's completion is being written
pub const REG_COUNTER_COMPLETION: u32 = 0x1030;
/// no request is under way, and an interrupt is not yet acknowledged
pub const REG_COUNTER_INTERRUPT: u32 = 0x1038;
/// none of these
pub const REG_COUNTER_IDLE: u32 = 0x1040;
/// completed
pub const REG_COUNTER_REQUESTS: u32 = 0x1048;
/// of them, with another status than `DONE`
pub const REG_COUNTER_FAILED: u32 = 0x1050;
/// units done; ECB counts blocks
pub const REG_COUNTER_UNITS: u32 = 0x1058;
/// bytes done
pub const REG_COUNTER_BYTES: u32 = 0x1060;
/// raised
pub const REG_COUNTER_INTERRUPTS: u32 = 0x1068;
/// cycles in which an address to read from was not taken
pub const REG_COUNTER_READ_WAITS: u32 = 0x1070;
/// cycles in which an address or data to write was not taken
pub const REG_COUNTER_WRITE_WAITS: u32 = 0x1078;
/// counters
pub const COUNTERS: usize = 15;
/// A submission
pub const SQE_BYTES: usize = 64;
/// see the table of operations
pub const SQE_OP: usize = 0;
/// see the table of flags
pub const SQE_FLAGS: usize = 1;
/// key slot
pub const SQE_SLOT: usize = 2;
/// of the bytes in a unit: 4 for ECB, 9 to 12 for XTS and runs
pub const SQE_LOG2_UNIT: usize = 3;
/// runs: what is added to the tweak from one unit to the next; zero for the other operations
pub const SQE_STEP: usize = 4;
/// zero
pub const SQE_ZERO0: usize = 6;
/// how many; ECB: blocks; XTS: 1
pub const SQE_UNITS: usize = 8;
/// zero
pub const SQE_ZERO1: usize = 12;
/// XTS: the encrypted tweak. Runs: the tweak of the first unit, byte 0 first, counted as a
/// little-endian number. ECB: zero
pub const SQE_TWEAK: usize = 16;
/// address of the data, or of a list
pub const SQE_SOURCE: usize = 32;
/// the same; zero with flag IN_PLACE
pub const SQE_DESTINATION: usize = 40;
/// entries of the list; zero without one
pub const SQE_SOURCE_ENTRIES: usize = 48;
/// the same
pub const SQE_DESTINATION_ENTRIES: usize = 52;
/// comes back in the completion
pub const SQE_COOKIE: usize = 56;
/// A completion
pub const CQE_BYTES: usize = 16;
/// of the submission
pub const CQE_COOKIE: usize = 0;
/// units, counted from the first, whose data in the destination is right. On an error the
/// request has left nothing else of its data in the destination
pub const CQE_UNITS_DONE: usize = 8;
/// see the table of statuses
pub const CQE_STATUS: usize = 12;
/// 1 in the first round through the ring, 0 in the second, and so on
pub const CQE_PHASE: usize = 13;
/// submissions that are done with, modulo 2^16
pub const CQE_SQ_HEAD: usize = 14;
/// An entry of a list
pub const ENTRY_BYTES: usize = 16;
/// aligned to 16 bytes
pub const ENTRY_ADDRESS: usize = 0;
/// bytes: a multiple of 16, not zero
pub const ENTRY_LENGTH: usize = 8;
/// zero
pub const ENTRY_ZERO: usize = 12;
/// nothing; completes in its turn. All of it but op, flags (INTERRUPT) and cookie is zero
pub const OP_NOP: u8 = 0;
/// blocks, each for itself (levels 1 to 3)
pub const OP_ECB: u8 = 1;
/// one unit, not longer than CAP2.xts_blocks, with its tweak already encrypted (levels 2 and
/// 3)
pub const OP_XTS: u8 = 2;
/// consecutive units, whose tweaks the device counts (and encrypts) (level 3)
pub const OP_RUN: u8 = 3;
/// decrypt
pub const FLAG_DECRYPT: u8 = 0;
/// interrupt with this completion, whatever COALESCE says
pub const FLAG_INTERRUPT: u8 = 1;
/// `source` is the address of a list
pub const FLAG_SOURCE_LIST: u8 = 2;
/// `destination` is the address of a list
pub const FLAG_DESTINATION_LIST: u8 = 3;
/// the destination is the source (and its list); DESTINATION_LIST is zero
pub const FLAG_IN_PLACE: u8 = 4;
/// AES, for op ECB, and for op XTS (its data key). Key: AES's
pub const CIPHER_ECB: u8 = 0;
/// XTS-AES, for op RUN. Key: data key, tweak key, which differ
pub const CIPHER_XTS: u8 = 1;
/// FAST with BRW polynomials. Key: AES's
pub const CIPHER_FAST_BRW: u8 = 2;
/// FAST with Horner's rule. Key: AES's
pub const CIPHER_FAST_HORNER: u8 = 3;
/// HCTR2 with tweaks of 32 bytes, zeros above. Key: AES's
pub const CIPHER_HCTR2: u8 = 4;
/// EME2-AES. Key: 128 bits K_AD, 128 bits K_ECB, AES's
pub const CIPHER_EME2: u8 = 5;
/// AEZ-core of whole AES calls. Key: AES's
pub const CIPHER_AEZ10: u8 = 6;
/// all units are done
pub const STATUS_DONE: u8 = 0;
/// no such operation at this level
pub const STATUS_OP: u8 = 1;
/// no units, or too many
pub const STATUS_UNITS: u8 = 2;
/// a unit size that the operation or the cipher does not have
pub const STATUS_UNIT: u8 = 3;
/// no such key slot, or it has no key
pub const STATUS_SLOT: u8 = 4;
/// the slot's key is for another operation
pub const STATUS_CIPHER: u8 = 5;
/// a list is shorter or longer than the run, too long or empty, or an entry is not as it has
/// to be
pub const STATUS_LIST: u8 = 6;
/// an address is not aligned to 16 bytes, or the request reaches beyond the address bits
pub const STATUS_ALIGNMENT: u8 = 7;
/// something that has to be zero is not
pub const STATUS_RESERVED: u8 = 8;
/// the tweak of a unit would pass 2^128
pub const STATUS_TWEAK: u8 = 9;
/// the bus reported an error on reading the source or a list
pub const STATUS_READ: u8 = 10;
/// the bus reported an error on writing the destination
pub const STATUS_WRITE: u8 = 11;
/// none
pub const FAULT_NONE: u8 = 0;
/// the bus reported an error on reading a submission
pub const FAULT_DESCRIPTOR: u8 = 1;
/// the bus reported an error on writing a completion: whether it arrived is not known
pub const FAULT_COMPLETION: u8 = 2;
/// TAIL is further ahead than the ring is long, or went back; or CQ_HEAD passed the
/// completions
pub const FAULT_DOORBELL: u8 = 3;
/// after a failed request, what had been written beyond units_done could not be overwritten
/// with zeros
pub const FAULT_ERASE: u8 = 4;
/// keys and data were wiped by CTRL.zeroize
pub const FAULT_WIPED: u8 = 5;
/// the ring was turned on with an address or size that cannot be
pub const FAULT_RING: u8 = 6;
/// done
pub const KEY_RESULT_DONE: u8 = 0;
/// no such slot
pub const KEY_RESULT_SLOT: u8 = 1;
/// no such cipher here
pub const KEY_RESULT_CIPHER: u8 = 2;
/// no such key length here
pub const KEY_RESULT_LENGTH: u8 = 3;
/// XTS: both keys are the same (FIPS 140, IG C.I)
pub const KEY_RESULT_EQUAL: u8 = 4;
/// no such command
pub const KEY_RESULT_COMMAND: u8 = 5;
