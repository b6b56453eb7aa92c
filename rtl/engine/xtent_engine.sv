// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The co-processor: registers on an AXI4-Lite slave, rings of requests and their data by an
// AXI4 master, interrupts. README.md has what software sees of it.
//
//   rings -> request -+-> source -> items -> cipher -> blocks, verdict -> destination -> result
//                     +-> cipher                                               |
//                     +-> destination                    completions <---------+
//
// Requests of all rings go through one behind the other, several at different stages.
// `aresetn` may be asserted at any time, and has to be released in step with `aclk`.

module xtent_engine
  import engine_pkg::*;
  import engine_regs_pkg::*;
#(
  // 1: ECB; 2: and XTS of one unit, whose tweak comes encrypted; 3: and runs.
  parameter int unsigned Level       = 3,
  // A bit for each cipher that is there, by its number in registers.toml.
  parameter int unsigned Ciphers     = 3,
  // Of AES: 128 or 256.
  parameter int unsigned KeyBits     = 256,
  // Of a unit in other ciphers than XTS: 512 to 4096, a power of two.
  parameter int unsigned UnitBytes   = 4096,
  // Of the largest unit of op XTS: 512 to 4096, a power of two.
  parameter int unsigned XtsBytes    = 512,
  // 1 to 8.
  parameter int unsigned Rings       = 4,
  // Of keys, 1 to 32.
  parameter int unsigned Slots       = 32,
  // Of a beat of the memory bus: 4, 8 or 16.
  parameter int unsigned BusBytes    = 16,
  // 32 to 64.
  parameter int unsigned AddressBits = 64,
  // For the timers of interrupts: the clock in MHz, 1 to 65535.
  parameter int unsigned CyclesPerUs = 100
) (
  input logic aclk,
  input logic aresetn,

  input  logic [12:0] s_axil_awaddr,
  input  logic [ 2:0] s_axil_awprot,
  input  logic        s_axil_awvalid,
  output logic        s_axil_awready,
  input  logic [31:0] s_axil_wdata,
  input  logic [ 3:0] s_axil_wstrb,
  input  logic        s_axil_wvalid,
  output logic        s_axil_wready,
  output logic [ 1:0] s_axil_bresp,
  output logic        s_axil_bvalid,
  input  logic        s_axil_bready,
  input  logic [12:0] s_axil_araddr,
  input  logic [ 2:0] s_axil_arprot,
  input  logic        s_axil_arvalid,
  output logic        s_axil_arready,
  output logic [31:0] s_axil_rdata,
  output logic [ 1:0] s_axil_rresp,
  output logic        s_axil_rvalid,
  input  logic        s_axil_rready,

  output logic [            0:0] m_axi_awid,
  output logic [AddressBits-1:0] m_axi_awaddr,
  output logic [            7:0] m_axi_awlen,
  output logic [            2:0] m_axi_awsize,
  output logic [            1:0] m_axi_awburst,
  output logic [            3:0] m_axi_awcache,
  output logic [            2:0] m_axi_awprot,
  output logic                   m_axi_awvalid,
  input  logic                   m_axi_awready,
  output logic [ 8*BusBytes-1:0] m_axi_wdata,
  output logic [   BusBytes-1:0] m_axi_wstrb,
  output logic                   m_axi_wlast,
  output logic                   m_axi_wvalid,
  input  logic                   m_axi_wready,
  input  logic [            0:0] m_axi_bid,
  input  logic [            1:0] m_axi_bresp,
  input  logic                   m_axi_bvalid,
  output logic                   m_axi_bready,
  output logic [            0:0] m_axi_arid,
  output logic [AddressBits-1:0] m_axi_araddr,
  output logic [            7:0] m_axi_arlen,
  output logic [            2:0] m_axi_arsize,
  output logic [            1:0] m_axi_arburst,
  output logic [            3:0] m_axi_arcache,
  output logic [            2:0] m_axi_arprot,
  output logic                   m_axi_arvalid,
  input  logic                   m_axi_arready,
  input  logic [            0:0] m_axi_rid,
  input  logic [ 8*BusBytes-1:0] m_axi_rdata,
  input  logic [            1:0] m_axi_rresp,
  input  logic                   m_axi_rlast,
  input  logic                   m_axi_rvalid,
  output logic                   m_axi_rready,

  // A level for each ring, and one for faults. A word of C++, too.
  /* verilator lint_off SYMRSVDWORD */
  output logic [Rings:0] interrupt
  /* verilator lint_on SYMRSVDWORD */
);

  // Others would build, and be wrong.
  if (!(Level inside {1, 2, 3})) begin : gen_level
    $error("Level has to be 1, 2 or 3");
  end
  if (!(KeyBits inside {128, 256})) begin : gen_key_bits
    $error("KeyBits has to be 128 or 256");
  end
  if (!(UnitBytes inside {512, 1024, 2048, 4096})) begin : gen_unit_bytes
    $error("UnitBytes has to be 512, 1024, 2048 or 4096");
  end
  if (!(XtsBytes inside {512, 1024, 2048, 4096})) begin : gen_xts_bytes
    $error("XtsBytes has to be 512, 1024, 2048 or 4096");
  end
  if (Rings < 1 || Rings > 8) begin : gen_rings
    $error("Rings has to be 1 to 8");
  end
  if (Slots < 1 || Slots > 32) begin : gen_slots
    $error("Slots has to be 1 to 32");
  end
  if (!(BusBytes inside {4, 8, 16})) begin : gen_bus_bytes
    $error("BusBytes has to be 4, 8 or 16");
  end
  if (AddressBits < 32 || AddressBits > 64) begin : gen_address_bits
    $error("AddressBits has to be 32 to 64");
  end
  if (CyclesPerUs < 1 || CyclesPerUs > 65535) begin : gen_cycles
    $error("CyclesPerUs has to be 1 to 65535");
  end
  if (!Ciphers[CipherEcb]) begin : gen_ecb
    $error("Ciphers has to have ECB, bit 0");
  end
  if (Level < 3 && Ciphers != 1) begin : gen_runs
    $error("Ciphers has to be 1 below Level 3: others than ECB are for runs");
  end
  if (Ciphers >= 32'd1 << (CipherAez10 + 1)) begin : gen_ciphers
    $error("Ciphers has a bit that is no cipher");
  end

  // ---- Resets ----

  logic rst_registers_n, rst_data_n, reset, zeroize, stop, ready;
  logic reader_idle, writer_idle, source_busy, destination_busy, keys_busy, cipher_wiped;

  engine_reset u_reset (
    .clk_i           (aclk),
    .rst_ni          (aresetn),
    .reset_i         (reset),
    .zeroize_i       (zeroize),
    .bus_idle_i      (reader_idle && writer_idle),
    .wiping_i        (source_busy || destination_busy || keys_busy || !cipher_wiped),
    .rst_registers_no(rst_registers_n),
    .rst_data_no     (rst_data_n),
    .stop_o          (stop),
    .ready_o         (ready)
  );

  // ---- Registers ----

  logic write, enable, rings_busy, rings_faulted, pipe_idle;
  logic [12:0] write_address, read_address;
  logic [31:0] write_data, rings_data, interrupts_data, counters_data, keys_data;

  engine_registers #(
    .Level      (Level),
    .Ciphers    (Ciphers),
    .KeyBits    (KeyBits),
    .UnitBytes  (UnitBytes),
    .XtsBytes   (XtsBytes),
    .Rings      (Rings),
    .Slots      (Slots),
    .BusBytes   (BusBytes),
    .AddressBits(AddressBits),
    .CyclesPerUs(CyclesPerUs)
  ) u_registers (
    .clk_i           (aclk),
    .rst_ni          (aresetn),
    .rst_registers_ni(rst_registers_n),
    .s_axil_awaddr,
    .s_axil_awvalid,
    .s_axil_awready,
    .s_axil_wdata,
    .s_axil_wstrb,
    .s_axil_wvalid,
    .s_axil_wready,
    .s_axil_bresp,
    .s_axil_bvalid,
    .s_axil_bready,
    .s_axil_araddr,
    .s_axil_arvalid,
    .s_axil_arready,
    .s_axil_rdata,
    .s_axil_rresp,
    .s_axil_rvalid,
    .s_axil_rready,
    .write_o         (write),
    .address_o       (write_address),
    .data_o          (write_data),
    .read_address_o  (read_address),
    .read_data_i     (rings_data | interrupts_data | counters_data | keys_data),
    .reset_o         (reset),
    .zeroize_o       (zeroize),
    .enable_o        (enable),
    .ready_i         (ready),
    .idle_i          (!rings_busy),
    .fault_i         (rings_faulted)
  );

  // ---- Keys ----

  logic [31:0] keys_status, slot_valid;
  logic [31:0][3:0] slot_cipher;
  logic keys_hold, keys_changed;
  logic [4:0] slot;
  logic [SlotBits-1:0] key;
  logic [3:0] key_cipher;

  engine_keys #(
    .Slots  (Slots),
    .KeyBits(KeyBits),
    .Ciphers(Ciphers)
  ) u_keys (
    .clk_i          (aclk),
    .rst_ni         (rst_data_n),
    .wiping_o       (keys_busy),
    .data_write_i   (write && write_address[12:7] == 6'(RegKeyData >> 7)),
    .data_index_i   (write_address[6:2]),
    .data_i         (write_data),
    .command_write_i(write && 32'(write_address) == RegKeyCmd),
    .command_i      (write_data),
    .status_o       (keys_status),
    .slot_valid_o   (slot_valid),
    .slot_cipher_o  (slot_cipher),
    .pipe_idle_i    (pipe_idle),
    .busy_o         (keys_hold),
    .slot_i         (slot),
    .key_o          (key),
    .key_cipher_o   (key_cipher),
    .changed_o      (keys_changed)
  );

  always_comb begin
    unique case (32'(read_address))
      RegKeyStatus: keys_data = keys_status;
      RegKeySlots: keys_data = slot_valid;
      default: keys_data = '0;
    endcase
  end

  // ---- Memory ----

  // Clients of the reader, and of the writer.
  localparam int unsigned ReadRings = 0;
  localparam int unsigned ReadSourceList = 1;
  localparam int unsigned ReadDestinationList = 2;
  localparam int unsigned ReadSource = 3;
  localparam int unsigned Readers = 4;
  localparam int unsigned WriteDestination = 0;
  localparam int unsigned WriteCompletion = 1;
  localparam int unsigned Writers = 2;

  logic [Readers-1:0] read_req_valid, read_req_ready, read_rsp_valid;
  address_t [Readers-1:0] read_req_address;
  burst_t [Readers-1:0] read_req_blocks;
  block_t read_rsp_block;
  logic unused_read_last, read_rsp_error;

  axi_reader #(
    .Clients    (Readers),
    .BusBytes   (BusBytes),
    .AddressBits(AddressBits)
  ) u_reader (
    .clk_i        (aclk),
    .rst_ni       (aresetn),
    .stop_i       (stop),
    .idle_o       (reader_idle),
    .req_valid_i  (read_req_valid),
    .req_ready_o  (read_req_ready),
    .req_address_i(read_req_address),
    .req_blocks_i (read_req_blocks),
    .rsp_valid_o  (read_rsp_valid),
    .rsp_block_o  (read_rsp_block),
    .rsp_last_o   (unused_read_last),
    .rsp_error_o  (read_rsp_error),
    .arvalid_o    (m_axi_arvalid),
    .arready_i    (m_axi_arready),
    .araddr_o     (m_axi_araddr),
    .arlen_o      (m_axi_arlen),
    .rvalid_i     (m_axi_rvalid),
    .rready_o     (m_axi_rready),
    .rdata_i      (m_axi_rdata),
    .rresp_i      (m_axi_rresp),
    .rlast_i      (m_axi_rlast)
  );

  logic [Writers-1:0] write_req_valid, write_req_ready, write_data_valid, write_data_ready;
  logic [Writers-1:0] write_done;
  logic write_done_error;
  address_t [Writers-1:0] write_req_address;
  burst_t [Writers-1:0] write_req_blocks;
  block_t [Writers-1:0] write_block;

  axi_writer #(
    .Clients    (Writers),
    .BusBytes   (BusBytes),
    .AddressBits(AddressBits)
  ) u_writer (
    .clk_i        (aclk),
    .rst_ni       (aresetn),
    .stop_i       (stop),
    .idle_o       (writer_idle),
    .req_valid_i  (write_req_valid),
    .req_ready_o  (write_req_ready),
    .req_address_i(write_req_address),
    .req_blocks_i (write_req_blocks),
    .data_valid_i (write_data_valid),
    .data_ready_o (write_data_ready),
    .data_block_i (write_block),
    .done_valid_o (write_done),
    .done_error_o (write_done_error),
    .awvalid_o    (m_axi_awvalid),
    .awready_i    (m_axi_awready),
    .awaddr_o     (m_axi_awaddr),
    .awlen_o      (m_axi_awlen),
    .wvalid_o     (m_axi_wvalid),
    .wready_i     (m_axi_wready),
    .wdata_o      (m_axi_wdata),
    .wstrb_o      (m_axi_wstrb),
    .wlast_o      (m_axi_wlast),
    .bvalid_i     (m_axi_bvalid),
    .bready_o     (m_axi_bready),
    .bresp_i      (m_axi_bresp)
  );

  // One ID, increasing bursts of whole beats; modifiable; unprivileged, secure data. Not
  // bufferable: an answer has to come from memory itself, with its error if there is one, for
  // completions follow from it.
  localparam logic [2:0] Size = 3'($clog2(BusBytes));
  assign m_axi_awid = '0;
  assign m_axi_awsize = Size;
  assign m_axi_awburst = 2'b01;
  assign m_axi_awcache = 4'b0010;
  assign m_axi_awprot = '0;
  assign m_axi_arid = '0;
  assign m_axi_arsize = Size;
  assign m_axi_arburst = 2'b01;
  assign m_axi_arcache = 4'b0010;
  assign m_axi_arprot = '0;

  logic unused;
  assign unused = ^{s_axil_awprot, s_axil_arprot, m_axi_bid, m_axi_rid};

  // ---- Rings ----

  logic [2:0] request_valid, request_ready;
  request_t request;
  address_t completion[Rings];
  logic [15:0] posted[Rings];
  logic [Rings-1:0] phase, dead, post, skip, not_erased, done, start, last, when_empty, fault;
  logic done_error, result_valid, result_ready;
  result_t result;
  logic [7:0] count[Rings];
  logic [15:0] us[Rings];
  logic [7:0] fault_code[Rings];
  address_t fault_address[Rings];

  engine_rings #(
    .Level      (Level),
    .Rings      (Rings),
    .Slots      (Slots),
    .AddressBits(AddressBits),
    .XtsBytes   (XtsBytes),
    .UnitBytes  (UnitBytes)
  ) u_rings (
    .clk_i          (aclk),
    .rst_ni         (rst_registers_n),
    .rst_data_ni    (rst_data_n),
    .wipe_i         (zeroize),
    .serve_i        (enable && ready),
    .write_i        (write),
    .write_address_i(write_address),
    .write_data_i   (write_data),
    .read_address_i (read_address),
    .read_data_o    (rings_data),
    .req_valid_o    (read_req_valid[ReadRings]),
    .req_ready_i    (read_req_ready[ReadRings]),
    .req_address_o  (read_req_address[ReadRings]),
    .req_blocks_o   (read_req_blocks[ReadRings]),
    .rsp_valid_i    (read_rsp_valid[ReadRings]),
    .rsp_block_i    (read_rsp_block),
    .rsp_error_i    (read_rsp_error),
    .slot_valid_i   (slot_valid),
    .slot_cipher_i  (slot_cipher),
    .hold_i         (keys_hold),
    .pipe_idle_o    (pipe_idle),
    .request_valid_o(request_valid),
    .request_ready_i(request_ready),
    .request_o      (request),
    .ended_i        (result_valid && result_ready),
    .completion_o   (completion),
    .posted_o       (posted),
    .phase_o        (phase),
    .dead_o         (dead),
    .post_i         (post),
    .skip_i         (skip),
    .not_erased_i   (not_erased),
    .done_i         (done),
    .done_error_i   (done_error),
    .start_o        (start),
    .last_o         (last),
    .when_empty_o   (when_empty),
    .count_o        (count),
    .us_o           (us),
    .fault_o        (fault),
    .fault_code_o   (fault_code),
    .fault_address_o(fault_address),
    .busy_o         (rings_busy),
    .faulted_o      (rings_faulted)
  );

  // ---- Data ----

  // Places in the fan-out of requests.
  localparam int unsigned ToSource = 0;
  localparam int unsigned ToCipher = 1;
  localparam int unsigned ToDestination = 2;

  logic item_valid, item_ready, out_valid, out_ready, verdict_valid, verdict_ready, cancel;
  item_t item;
  block_t out_block;
  verdict_t verdict;
  logic [3:0] cancel_number;
  logic source_list, destination_list, through, starved, blocked, core_busy;

  engine_source #(
    .AddressBits(AddressBits)
  ) u_source (
    .clk_i             (aclk),
    .rst_ni            (rst_data_n),
    .busy_o            (source_busy),
    .fetching_o        (source_list),
    .request_valid_i   (request_valid[ToSource]),
    .request_ready_o   (request_ready[ToSource]),
    .request_i         (request),
    .abandon_i         (cancel),
    .abandon_number_i  (cancel_number),
    .item_valid_o      (item_valid),
    .item_ready_i      (item_ready),
    .item_o            (item),
    .list_req_valid_o  (read_req_valid[ReadSourceList]),
    .list_req_ready_i  (read_req_ready[ReadSourceList]),
    .list_req_address_o(read_req_address[ReadSourceList]),
    .list_req_blocks_o (read_req_blocks[ReadSourceList]),
    .list_rsp_valid_i  (read_rsp_valid[ReadSourceList]),
    .data_req_valid_o  (read_req_valid[ReadSource]),
    .data_req_ready_i  (read_req_ready[ReadSource]),
    .data_req_address_o(read_req_address[ReadSource]),
    .data_req_blocks_o (read_req_blocks[ReadSource]),
    .data_rsp_valid_i  (read_rsp_valid[ReadSource]),
    .rsp_block_i       (read_rsp_block),
    .rsp_error_i       (read_rsp_error)
  );

  engine_cipher #(
    .Level    (Level),
    .Ciphers  (Ciphers),
    .KeyBits  (KeyBits),
    // Units of runs go up to 4096 bytes.
    .XtsBytes (Level == 3 ? 4096 : XtsBytes),
    .UnitBytes(UnitBytes)
  ) u_cipher (
    .clk_i          (aclk),
    .rst_ni         (rst_data_n),
    .wiped_o        (cipher_wiped),
    .request_valid_i(request_valid[ToCipher]),
    .request_ready_o(request_ready[ToCipher]),
    .request_i      (request),
    .item_valid_i   (item_valid),
    .item_ready_o   (item_ready),
    .item_i         (item),
    .slot_o         (slot),
    .key_i          (key),
    .key_cipher_i   (key_cipher),
    .forget_i       (keys_changed),
    .out_valid_o    (out_valid),
    .out_ready_i    (out_ready),
    .out_block_o    (out_block),
    .verdict_valid_o(verdict_valid),
    .verdict_ready_i(verdict_ready),
    .verdict_o      (verdict),
    .starved_o      (starved),
    .blocked_o      (blocked),
    .core_busy_o    (core_busy)
  );

  engine_destination #(
    .AddressBits(AddressBits)
  ) u_destination (
    .clk_i             (aclk),
    .rst_ni            (rst_data_n),
    .busy_o            (destination_busy),
    .waiting_o         (through),
    .fetching_o        (destination_list),
    .request_valid_i   (request_valid[ToDestination]),
    .request_ready_o   (request_ready[ToDestination]),
    .request_i         (request),
    .out_valid_i       (out_valid),
    .out_ready_o       (out_ready),
    .out_block_i       (out_block),
    .verdict_valid_i   (verdict_valid),
    .verdict_ready_o   (verdict_ready),
    .verdict_i         (verdict),
    .cancel_o          (cancel),
    .cancel_number_o   (cancel_number),
    .result_valid_o    (result_valid),
    .result_ready_i    (result_ready),
    .result_o          (result),
    .list_req_valid_o  (read_req_valid[ReadDestinationList]),
    .list_req_ready_i  (read_req_ready[ReadDestinationList]),
    .list_req_address_o(read_req_address[ReadDestinationList]),
    .list_req_blocks_o (read_req_blocks[ReadDestinationList]),
    .list_rsp_valid_i  (read_rsp_valid[ReadDestinationList]),
    .rsp_block_i       (read_rsp_block),
    .rsp_error_i       (read_rsp_error),
    .req_valid_o       (write_req_valid[WriteDestination]),
    .req_ready_i       (write_req_ready[WriteDestination]),
    .req_address_o     (write_req_address[WriteDestination]),
    .req_blocks_o      (write_req_blocks[WriteDestination]),
    .data_valid_o      (write_data_valid[WriteDestination]),
    .data_ready_i      (write_data_ready[WriteDestination]),
    .data_block_o      (write_block[WriteDestination]),
    .done_valid_i      (write_done[WriteDestination]),
    .done_error_i      (write_done_error)
  );

  // ---- Completions ----

  logic done_interrupt, done_failed, completing;
  blocks_t done_blocks, done_units;
  logic [3:0] raised;

  engine_completion #(
    .Rings(Rings)
  ) u_completion (
    .clk_i           (aclk),
    .rst_ni          (rst_data_n),
    .result_valid_i  (result_valid),
    .result_ready_o  (result_ready),
    .result_i        (result),
    .address_i       (completion),
    .index_i         (posted),
    .phase_i         (phase),
    .dead_i          (dead),
    .post_o          (post),
    .skip_o          (skip),
    .not_erased_o    (not_erased),
    .done_o          (done),
    .done_error_o    (done_error),
    .done_interrupt_o(done_interrupt),
    .done_failed_o   (done_failed),
    .done_blocks_o   (done_blocks),
    .done_units_o    (done_units),
    .busy_o          (completing),
    .req_valid_o     (write_req_valid[WriteCompletion]),
    .req_ready_i     (write_req_ready[WriteCompletion]),
    .req_address_o   (write_req_address[WriteCompletion]),
    .req_blocks_o    (write_req_blocks[WriteCompletion]),
    .data_valid_o    (write_data_valid[WriteCompletion]),
    .data_ready_i    (write_data_ready[WriteCompletion]),
    .data_block_o    (write_block[WriteCompletion]),
    .done_valid_i    (write_done[WriteCompletion]),
    .done_error_i    (write_done_error)
  );

  // Those that software can rely on: their entry is in memory.
  logic [Rings-1:0] completed;
  assign completed = done_error ? '0 : done & ~dead;

  engine_interrupts #(
    .Rings      (Rings),
    .CyclesPerUs(CyclesPerUs)
  ) u_interrupts (
    .clk_i           (aclk),
    .rst_ni          (rst_registers_n),
    .write_i         (write),
    .write_address_i (write_address),
    .write_data_i    (write_data),
    .read_address_i  (read_address),
    .read_data_o     (interrupts_data),
    .done_i          (completed),
    .done_interrupt_i(done_interrupt),
    .last_i          (last),
    .start_i         (start),
    .when_empty_i    (when_empty),
    .count_i         (count),
    .us_i            (us),
    .fault_i         (fault),
    .fault_code_i    (fault_code),
    .fault_address_i (fault_address),
    .interrupt_o     (interrupt),
    .raised_o        (raised)
  );

  engine_counters u_counters (
    .clk_i             (aclk),
    .rst_ni            (rst_registers_n),
    .write_i           (write),
    .write_address_i   (write_address),
    .write_data_i      (write_data),
    .read_address_i    (read_address),
    .read_data_o       (counters_data),
    .completing_i      (completing),
    .piped_i           (!pipe_idle),
    .through_i         (through),
    .destination_list_i(destination_list),
    .source_list_i     (source_list),
    .blocked_i         (blocked),
    .starved_i         (starved || !core_busy),
    .busy_i            (rings_busy),
    .interrupt_i       (interrupt != '0),
    .done_i            (completed != '0),
    .done_failed_i     (done_failed),
    .done_units_i      (done_units),
    .done_blocks_i     (done_blocks),
    .raised_i          (raised),
    .read_wait_i       (m_axi_arvalid && !m_axi_arready),
    .write_wait_i      ((m_axi_awvalid && !m_axi_awready) || (m_axi_wvalid && !m_axi_wready))
  );

endmodule
