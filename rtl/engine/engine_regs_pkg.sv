// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The co-processor's registers and descriptors. Written by rtl/engine/generate.py from registers.toml: change that.

package engine_regs_pkg;

  // Whoever reads it takes some of them.
  /* verilator lint_off UNUSEDPARAM */
  // what register ID reads
  localparam int unsigned Id = 32'h544e5458;
  // version of the layout: another one is refused
  localparam int unsigned Major = 1;
  // version of the layout
  localparam int unsigned Minor = 0;
  // of the simulated device
  localparam int unsigned PciVendor = 32'h1d1d;
  // of the simulated device
  localparam int unsigned PciDevice = 32'h7874;
  // bytes of BAR 0
  localparam int unsigned BarBytes = 32'h2000;
  // `XTNT`, byte 0 first
  localparam int unsigned RegId = 32'h0;
  // of this layout: software refuses another major version
  localparam int unsigned RegVersion = 32'h4;
  // adds what older software need not know
  localparam int unsigned VersionMinorLow = 0;
  // its width
  localparam int unsigned VersionMinorBits = 16;
  // changes what is there
  localparam int unsigned VersionMajorLow = 16;
  // its width
  localparam int unsigned VersionMajorBits = 16;
  // what is built
  localparam int unsigned RegCap0 = 32'h8;
  // 1: ECB; 2: and XTS of one unit, whose tweak comes encrypted; 3: and runs
  localparam int unsigned Cap0LevelLow = 0;
  // its width
  localparam int unsigned Cap0LevelBits = 4;
  // 1 to 8
  localparam int unsigned Cap0RingsLow = 4;
  // its width
  localparam int unsigned Cap0RingsBits = 4;
  // key slots, 1 to 32
  localparam int unsigned Cap0SlotsLow = 8;
  // its width
  localparam int unsigned Cap0SlotsBits = 8;
  // of a beat of the memory bus: 4, 8 or 16
  localparam int unsigned Cap0BusBytesLow = 16;
  // its width
  localparam int unsigned Cap0BusBytesBits = 8;
  // of the memory bus
  localparam int unsigned Cap0AddressBitsLow = 24;
  // its width
  localparam int unsigned Cap0AddressBitsBits = 7;
  // which ciphers
  localparam int unsigned RegCap1 = 32'hc;
  // a bit for each cipher that is there
  localparam int unsigned Cap1CiphersLow = 0;
  // its width
  localparam int unsigned Cap1CiphersBits = 16;
  // of AES: bit 0 for 128, bit 1 for 256
  localparam int unsigned Cap1KeyBitsLow = 16;
  // its width
  localparam int unsigned Cap1KeyBitsBits = 2;
  // unit sizes of runs in XTS: bit 0 for 512 bytes, to bit 3 for 4096
  localparam int unsigned Cap1XtsUnitsLow = 20;
  // its width
  localparam int unsigned Cap1XtsUnitsBits = 4;
  // unit sizes of runs in the other ciphers
  localparam int unsigned Cap1OtherUnitsLow = 24;
  // its width
  localparam int unsigned Cap1OtherUnitsBits = 4;
  // limits of a request
  localparam int unsigned RegCap2 = 32'h10;
  // of the most bytes in a request
  localparam int unsigned Cap2Log2BytesLow = 0;
  // its width
  localparam int unsigned Cap2Log2BytesBits = 6;
  // of the most entries in a list
  localparam int unsigned Cap2Log2EntriesLow = 8;
  // its width
  localparam int unsigned Cap2Log2EntriesBits = 6;
  // of the most entries in a ring
  localparam int unsigned Cap2Log2RingLow = 16;
  // its width
  localparam int unsigned Cap2Log2RingBits = 4;
  // 16-byte blocks in the largest unit of op XTS
  localparam int unsigned Cap2XtsBlocksLow = 20;
  // its width
  localparam int unsigned Cap2XtsBlocksBits = 9;
  // the clock
  localparam int unsigned RegCap3 = 32'h14;
  // cycles that the coalescing timer takes for a microsecond
  localparam int unsigned Cap3CyclesPerUsLow = 0;
  // its width
  localparam int unsigned Cap3CyclesPerUsBits = 16;
  // commands; bit 0 keeps its value
  localparam int unsigned RegCtrl = 32'h20;
  // rw: rings are served while it is set
  localparam int unsigned CtrlEnableLow = 0;
  // its width
  localparam int unsigned CtrlEnableBits = 1;
  // as after power-on, but that the bus sees every transfer end that it saw begin: rings,
  // keys, data and registers are wiped, nothing more is written to memory
  localparam int unsigned CtrlResetLow = 1;
  // its width
  localparam int unsigned CtrlResetBits = 1;
  // the same at once for keys and data; software that only wants keys gone. Rings fault with
  // `wiped`
  localparam int unsigned CtrlZeroizeLow = 2;
  // its width
  localparam int unsigned CtrlZeroizeBits = 1;
  // state of the device
  localparam int unsigned RegStatus = 32'h24;
  // registers other than this and ID to CAP3 may be used: no reset, no wiping is under way
  localparam int unsigned StatusReadyLow = 0;
  // its width
  localparam int unsigned StatusReadyBits = 1;
  // no request is under way
  localparam int unsigned StatusIdleLow = 1;
  // its width
  localparam int unsigned StatusIdleBits = 1;
  // a ring has faulted
  localparam int unsigned StatusFaultLow = 2;
  // its width
  localparam int unsigned StatusFaultBits = 1;
  // why there is an interrupt
  localparam int unsigned RegIntStatus = 32'h28;
  // ring r has completions to be looked at
  localparam int unsigned IntStatusRingsLow = 0;
  // its width
  localparam int unsigned IntStatusRingsBits = 8;
  // a ring has faulted
  localparam int unsigned IntStatusFaultLow = 31;
  // its width
  localparam int unsigned IntStatusFaultBits = 1;
  // which of them interrupt; reads give the mask
  localparam int unsigned RegIntSet = 32'h2c;
  // lowest bit
  localparam int unsigned IntSetRingsLow = 0;
  // its width
  localparam int unsigned IntSetRingsBits = 8;
  // lowest bit
  localparam int unsigned IntSetFaultLow = 31;
  // its width
  localparam int unsigned IntSetFaultBits = 1;
  // which of them no longer interrupt; reads give the mask
  localparam int unsigned RegIntClear = 32'h30;
  // lowest bit
  localparam int unsigned IntClearRingsLow = 0;
  // its width
  localparam int unsigned IntClearRingsBits = 8;
  // lowest bit
  localparam int unsigned IntClearFaultLow = 31;
  // its width
  localparam int unsigned IntClearFaultBits = 1;
  // the first fault since it was cleared, until any one is written to it
  localparam int unsigned RegFault = 32'h34;
  // see the table of faults; 0: none
  localparam int unsigned FaultCodeLow = 0;
  // its width
  localparam int unsigned FaultCodeBits = 8;
  // the ring
  localparam int unsigned FaultRingLow = 8;
  // its width
  localparam int unsigned FaultRingBits = 8;
  // the address that the fault is about, if there is one
  localparam int unsigned RegFaultAddrLo = 32'h38;
  // its upper half
  localparam int unsigned RegFaultAddrHi = 32'h3c;
  // a key, byte 0 in bits 7:0 of the first; wiped by every KEY_CMD
  localparam int unsigned RegKeyData = 32'h80;
  // registers of that name
  localparam int unsigned KeyDataCount = 32;
  // does something to a slot
  localparam int unsigned RegKeyCmd = 32'h100;
  // which
  localparam int unsigned KeyCmdSlotLow = 0;
  // its width
  localparam int unsigned KeyCmdSlotBits = 8;
  // what the key is for; the table of ciphers has its length
  localparam int unsigned KeyCmdCipherLow = 8;
  // its width
  localparam int unsigned KeyCmdCipherBits = 4;
  // of AES: 0 for 128, 1 for 256
  localparam int unsigned KeyCmdKeyBitsLow = 12;
  // its width
  localparam int unsigned KeyCmdKeyBitsBits = 1;
  // 1: load the slot from KEY_DATA; 2: clear it
  localparam int unsigned KeyCmdCommandLow = 16;
  // its width
  localparam int unsigned KeyCmdCommandBits = 2;
  // of the last KEY_CMD
  localparam int unsigned RegKeyStatus = 32'h104;
  // not done yet: a slot in use is changed between two requests
  localparam int unsigned KeyStatusBusyLow = 0;
  // its width
  localparam int unsigned KeyStatusBusyBits = 1;
  // see the table of key results
  localparam int unsigned KeyStatusResultLow = 4;
  // its width
  localparam int unsigned KeyStatusResultBits = 4;
  // a bit for each slot that has a key
  localparam int unsigned RegKeySlots = 32'h108;
  // commands to the counters
  localparam int unsigned RegCounterCtrl = 32'h1000;
  // copies all counters, of one cycle, to where they are read
  localparam int unsigned CounterCtrlSnapshotLow = 0;
  // its width
  localparam int unsigned CounterCtrlSnapshotBits = 1;
  // sets the running counters to zero
  localparam int unsigned CounterCtrlClearLow = 1;
  // its width
  localparam int unsigned CounterCtrlClearBits = 1;
  // the first ring's registers
  localparam int unsigned RingsOffset = 32'h200;
  // from one ring's registers to the next
  localparam int unsigned RingsStride = 32'h40;
  // address of the submission ring, aligned to 64 bytes
  localparam int unsigned RingSqLo = 32'h0;
  // its upper half
  localparam int unsigned RingSqHi = 32'h4;
  // address of the completion ring, aligned to 64 bytes
  localparam int unsigned RingCqLo = 32'h8;
  // its upper half
  localparam int unsigned RingCqHi = 32'hc;
  // entries of both rings
  localparam int unsigned RingSize = 32'h10;
  // 0 to CAP2.log2_ring
  localparam int unsigned RingSizeLog2Low = 0;
  // its width
  localparam int unsigned RingSizeLog2Bits = 4;
  // turns the ring on and off
  localparam int unsigned RingControl = 32'h14;
  // on: all indices of the ring start at 0. Off: nothing more is fetched, and what was fetched
  // completes; STATE.active tells when
  localparam int unsigned RingControlEnableLow = 0;
  // its width
  localparam int unsigned RingControlEnableBits = 1;
  // interrupt also when the ring runs empty
  localparam int unsigned RingControlWhenEmptyLow = 1;
  // its width
  localparam int unsigned RingControlWhenEmptyBits = 1;
  // doorbell: entries submitted since the ring was turned on, modulo 2^16; entry i lies at
  // index i modulo the size
  localparam int unsigned RingTail = 32'h18;
  // lowest bit
  localparam int unsigned RingTailIndexLow = 0;
  // its width
  localparam int unsigned RingTailIndexBits = 16;
  // doorbell: completions that software has read, modulo 2^16
  localparam int unsigned RingCqHead = 32'h1c;
  // lowest bit
  localparam int unsigned RingCqHeadIndexLow = 0;
  // its width
  localparam int unsigned RingCqHeadIndexBits = 16;
  // when completions interrupt: after the count, or the time after the first that has not,
  // whichever is first
  localparam int unsigned RingCoalesce = 32'h20;
  // 0 and 1: each completion
  localparam int unsigned RingCoalesceCountLow = 0;
  // its width
  localparam int unsigned RingCoalesceCountBits = 8;
  // microseconds; 0: no timer
  localparam int unsigned RingCoalesceUsLow = 16;
  // its width
  localparam int unsigned RingCoalesceUsBits = 16;
  // of the ring
  localparam int unsigned RingState = 32'h24;
  // on, or with requests under way
  localparam int unsigned RingStateActiveLow = 0;
  // its width
  localparam int unsigned RingStateActiveBits = 1;
  // stopped by a fault; turned off and on again it starts anew
  localparam int unsigned RingStateFaultLow = 1;
  // its width
  localparam int unsigned RingStateFaultBits = 1;
  // the fault
  localparam int unsigned RingStateCodeLow = 8;
  // its width
  localparam int unsigned RingStateCodeBits = 8;
  // submissions fetched, modulo 2^16
  localparam int unsigned RingStateFetchedLow = 16;
  // its width
  localparam int unsigned RingStateFetchedBits = 16;
  // completions written
  localparam int unsigned RingCompleted = 32'h28;
  // modulo 2^16
  localparam int unsigned RingCompletedIndexLow = 0;
  // its width
  localparam int unsigned RingCompletedIndexBits = 16;
  // cycles since the counters were cleared
  localparam int unsigned RegCounterTotal = 32'h1008;
  // the oldest request waits for its descriptor or a list
  localparam int unsigned RegCounterFetch = 32'h1010;
  // the cipher waits for the oldest request's data
  localparam int unsigned RegCounterSource = 32'h1018;
  // the cipher is at work on the oldest request
  localparam int unsigned RegCounterCipher = 32'h1020;
  // all of the oldest request is through the cipher, or the cipher waits for room; its data is
  // being written
  localparam int unsigned RegCounterDestination = 32'h1028;
  // the oldest request's completion is being written
  localparam int unsigned RegCounterCompletion = 32'h1030;
  // no request is under way, and an interrupt is not yet acknowledged
  localparam int unsigned RegCounterInterrupt = 32'h1038;
  // none of these
  localparam int unsigned RegCounterIdle = 32'h1040;
  // completed
  localparam int unsigned RegCounterRequests = 32'h1048;
  // of them, with another status than `DONE`
  localparam int unsigned RegCounterFailed = 32'h1050;
  // units done; ECB counts blocks
  localparam int unsigned RegCounterUnits = 32'h1058;
  // bytes done
  localparam int unsigned RegCounterBytes = 32'h1060;
  // raised
  localparam int unsigned RegCounterInterrupts = 32'h1068;
  // cycles in which an address to read from was not taken
  localparam int unsigned RegCounterReadWaits = 32'h1070;
  // cycles in which an address or data to write was not taken
  localparam int unsigned RegCounterWriteWaits = 32'h1078;
  // counters
  localparam int unsigned Counters = 15;
  // A submission
  localparam int unsigned SqeBytes = 64;
  // see the table of operations
  localparam int unsigned SqeOp = 0;
  // see the table of flags
  localparam int unsigned SqeFlags = 1;
  // key slot
  localparam int unsigned SqeSlot = 2;
  // of the bytes in a unit: 4 for ECB, 9 to 12 for XTS and runs
  localparam int unsigned SqeLog2Unit = 3;
  // runs: what is added to the tweak from one unit to the next; zero for the other operations
  localparam int unsigned SqeStep = 4;
  // zero
  localparam int unsigned SqeZero0 = 6;
  // how many; ECB: blocks; XTS: 1
  localparam int unsigned SqeUnits = 8;
  // zero
  localparam int unsigned SqeZero1 = 12;
  // XTS: the encrypted tweak. Runs: the tweak of the first unit, byte 0 first, counted as a
  // little-endian number. ECB: zero
  localparam int unsigned SqeTweak = 16;
  // address of the data, or of a list
  localparam int unsigned SqeSource = 32;
  // the same; zero with flag IN_PLACE
  localparam int unsigned SqeDestination = 40;
  // entries of the list; zero without one
  localparam int unsigned SqeSourceEntries = 48;
  // the same
  localparam int unsigned SqeDestinationEntries = 52;
  // comes back in the completion
  localparam int unsigned SqeCookie = 56;
  // A completion
  localparam int unsigned CqeBytes = 16;
  // of the submission
  localparam int unsigned CqeCookie = 0;
  // units, counted from the first, whose data in the destination is right. On an error the
  // request has left nothing else of its data in the destination
  localparam int unsigned CqeUnitsDone = 8;
  // see the table of statuses
  localparam int unsigned CqeStatus = 12;
  // 1 in the first round through the ring, 0 in the second, and so on
  localparam int unsigned CqePhase = 13;
  // submissions that are done with, modulo 2^16
  localparam int unsigned CqeSqHead = 14;
  // An entry of a list
  localparam int unsigned EntryBytes = 16;
  // aligned to 16 bytes
  localparam int unsigned EntryAddress = 0;
  // bytes: a multiple of 16, not zero
  localparam int unsigned EntryLength = 8;
  // zero
  localparam int unsigned EntryZero = 12;
  // nothing; completes in its turn. All of it but op, flags (INTERRUPT) and cookie is zero
  localparam int unsigned OpNop = 0;
  // blocks, each for itself (levels 1 to 3)
  localparam int unsigned OpEcb = 1;
  // one unit, not longer than CAP2.xts_blocks, with its tweak already encrypted (levels 2 and
  // 3)
  localparam int unsigned OpXts = 2;
  // consecutive units, whose tweaks the device counts (and encrypts) (level 3)
  localparam int unsigned OpRun = 3;
  // decrypt
  localparam int unsigned FlagDecrypt = 0;
  // interrupt with this completion, whatever COALESCE says
  localparam int unsigned FlagInterrupt = 1;
  // `source` is the address of a list
  localparam int unsigned FlagSourceList = 2;
  // `destination` is the address of a list
  localparam int unsigned FlagDestinationList = 3;
  // the destination is the source (and its list); DESTINATION_LIST is zero
  localparam int unsigned FlagInPlace = 4;
  // AES, for op ECB, and for op XTS (its data key). Key: AES's
  localparam int unsigned CipherEcb = 0;
  // XTS-AES, for op RUN. Key: data key, tweak key, which differ
  localparam int unsigned CipherXts = 1;
  // FAST with BRW polynomials. Key: AES's
  localparam int unsigned CipherFastBrw = 2;
  // FAST with Horner's rule. Key: AES's
  localparam int unsigned CipherFastHorner = 3;
  // HCTR2 with tweaks of 32 bytes, zeros above. Key: AES's
  localparam int unsigned CipherHctr2 = 4;
  // EME2-AES. Key: 128 bits K_AD, 128 bits K_ECB, AES's
  localparam int unsigned CipherEme2 = 5;
  // AEZ-core of whole AES calls. Key: AES's
  localparam int unsigned CipherAez10 = 6;
  // all units are done
  localparam int unsigned StatusDone = 0;
  // no such operation at this level
  localparam int unsigned StatusOp = 1;
  // no units, or too many
  localparam int unsigned StatusUnits = 2;
  // a unit size that the operation or the cipher does not have
  localparam int unsigned StatusUnit = 3;
  // no such key slot, or it has no key
  localparam int unsigned StatusSlot = 4;
  // the slot's key is for another operation
  localparam int unsigned StatusCipher = 5;
  // a list is shorter or longer than the run, too long or empty, or an entry is not as it has
  // to be
  localparam int unsigned StatusList = 6;
  // an address is not aligned to 16 bytes, or the request reaches beyond the address bits
  localparam int unsigned StatusAlignment = 7;
  // something that has to be zero is not
  localparam int unsigned StatusReserved = 8;
  // the tweak of a unit would pass 2^128
  localparam int unsigned StatusTweak = 9;
  // the bus reported an error on reading the source or a list
  localparam int unsigned StatusRead = 10;
  // the bus reported an error on writing the destination
  localparam int unsigned StatusWrite = 11;
  // none
  localparam int unsigned FaultNone = 0;
  // the bus reported an error on reading a submission
  localparam int unsigned FaultDescriptor = 1;
  // the bus reported an error on writing a completion: whether it arrived is not known
  localparam int unsigned FaultCompletion = 2;
  // TAIL is further ahead than the ring is long, or went back; or CQ_HEAD passed the
  // completions
  localparam int unsigned FaultDoorbell = 3;
  // after a failed request, what had been written beyond units_done could not be overwritten
  // with zeros
  localparam int unsigned FaultErase = 4;
  // keys and data were wiped by CTRL.zeroize
  localparam int unsigned FaultWiped = 5;
  // the ring was turned on with an address or size that cannot be
  localparam int unsigned FaultRing = 6;
  // done
  localparam int unsigned KeyResultDone = 0;
  // no such slot
  localparam int unsigned KeyResultSlot = 1;
  // no such cipher here
  localparam int unsigned KeyResultCipher = 2;
  // no such key length here
  localparam int unsigned KeyResultLength = 3;
  // XTS: both keys are the same (FIPS 140, IG C.I)
  localparam int unsigned KeyResultEqual = 4;
  // no such command
  localparam int unsigned KeyResultCommand = 5;
  /* verilator lint_on UNUSEDPARAM */

endpackage
