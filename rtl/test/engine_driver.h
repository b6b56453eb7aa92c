// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The whole co-processor in a simulation: clock, memory behind its bus, and a small driver
// on its registers. What it is built with comes as macros, from run.sh.
#pragma once

#include <Vxtent_engine.h>

#include <cstring>
#include <functional>
#include <map>

#include "../../kernel/pci/registers.h"
#include "bus_memory.h"
#include "models/models.h"

using model::operator^;

#define XE(name) XTENT_ENGINE_##name

// The engine's memory port by the names that BusMemory has for it.
struct BusPort {
  explicit BusPort(Vxtent_engine& top)
      : arvalid_o(top.m_axi_arvalid), arready_i(top.m_axi_arready), araddr_o(top.m_axi_araddr),
        arlen_o(top.m_axi_arlen), rvalid_i(top.m_axi_rvalid), rready_o(top.m_axi_rready),
        rdata_i(top.m_axi_rdata), rresp_i(top.m_axi_rresp), rlast_i(top.m_axi_rlast),
        awvalid_o(top.m_axi_awvalid), awready_i(top.m_axi_awready), awaddr_o(top.m_axi_awaddr),
        awlen_o(top.m_axi_awlen), wvalid_o(top.m_axi_wvalid), wready_i(top.m_axi_wready),
        wdata_o(top.m_axi_wdata), wstrb_o(top.m_axi_wstrb), wlast_o(top.m_axi_wlast),
        bvalid_i(top.m_axi_bvalid), bready_o(top.m_axi_bready), bresp_i(top.m_axi_bresp) {}
  decltype((std::declval<Vxtent_engine&>().m_axi_arvalid)) arvalid_o, arready_i;
  decltype((std::declval<Vxtent_engine&>().m_axi_araddr)) araddr_o;
  decltype((std::declval<Vxtent_engine&>().m_axi_arlen)) arlen_o;
  decltype((std::declval<Vxtent_engine&>().m_axi_rvalid)) rvalid_i, rready_o;
  decltype((std::declval<Vxtent_engine&>().m_axi_rdata)) rdata_i;
  decltype((std::declval<Vxtent_engine&>().m_axi_rresp)) rresp_i, rlast_i;
  decltype((std::declval<Vxtent_engine&>().m_axi_awvalid)) awvalid_o, awready_i;
  decltype((std::declval<Vxtent_engine&>().m_axi_awaddr)) awaddr_o;
  decltype((std::declval<Vxtent_engine&>().m_axi_awlen)) awlen_o;
  decltype((std::declval<Vxtent_engine&>().m_axi_wvalid)) wvalid_o, wready_i;
  decltype((std::declval<Vxtent_engine&>().m_axi_wdata)) wdata_o;
  decltype((std::declval<Vxtent_engine&>().m_axi_wstrb)) wstrb_o;
  decltype((std::declval<Vxtent_engine&>().m_axi_wlast)) wlast_o;
  decltype((std::declval<Vxtent_engine&>().m_axi_bvalid)) bvalid_i, bready_o;
  decltype((std::declval<Vxtent_engine&>().m_axi_bresp)) bresp_i;
};

using Memory = BusMemory<BusPort, BUS_BYTES>;

// Above 4 GiB, where addresses have that many bits.
constexpr uint64_t kBase = ADDRESS_BITS > 33 ? 0x120000000 : 0x20000000;
constexpr size_t kMemory = 24 << 20;

struct Completion {
  uint64_t cookie;
  uint32_t units;
  int status;
  int sq_head;
};

class Engine {
 public:
  explicit Engine(uint64_t seed)
      : random(seed), port_(top), memory(port_, random, kBase, kMemory) {
    for (int r = 0; r < RINGS; r++) rings[r].base = kBase + r * 0x20000;
    hard_reset();
  }

  // Of a ring, as the driver has it.
  struct Ring {
    uint64_t base = 0;
    int log2 = 0;
    uint16_t tail = 0, head = 0;
    int size() const { return 1 << log2; }
    uint64_t sq() const { return base; }
    uint64_t cq() const { return base + 0x10000; }
  };

  Vxtent_engine top;
  Random random;

 private:
  BusPort port_;

 public:
  Memory memory;
  Ring rings[RINGS];
  uint64_t now = 0;
  // Beats with data that the bus took, since the test set it to zero.
  uint64_t written = 0;
  // Of the last cycle: the bus has answered a write; a register was written.
  bool answered = false;
  int written_to = -1;
  std::function<void()> after_tick;
  // Random waits of software between and within accesses to registers.
  bool dawdle = false;

  void tick() {
    memory.drive(now);
    top.aclk = 0;
    top.eval();
    memory.observe(now);
    if (top.m_axi_wvalid && top.m_axi_wready && top.m_axi_wstrb) written++;
    answered = top.m_axi_bvalid && top.m_axi_bready;
    aw_ = top.s_axil_awvalid && top.s_axil_awready;
    w_ = top.s_axil_wvalid && top.s_axil_wready;
    b_ = top.s_axil_bvalid && top.s_axil_bready;
    ar_ = top.s_axil_arvalid && top.s_axil_arready;
    r_ = top.s_axil_rvalid && top.s_axil_rready;
    read_ = top.s_axil_rdata;
    written_to = aw_ && w_ ? static_cast<int>(top.s_axil_awaddr) : -1;
    top.aclk = 1;
    top.eval();
    now++;
    if (after_tick) after_tick();
  }

  void hard_reset() {
    top.aresetn = 0;
    tick();
    tick();
    top.aresetn = 1;
    wait_ready();
  }

  void write(uint32_t address, uint32_t value, int strobes = 15) {
    wait_some();
    top.s_axil_awaddr = address;
    top.s_axil_awvalid = 1;
    if (dawdle && random.below(2)) tick();
    top.s_axil_wdata = value;
    top.s_axil_wstrb = strobes;
    top.s_axil_wvalid = 1;
    top.s_axil_bready = 0;
    bool address_taken = false, data_taken = false;
    for (int i = 0; !(address_taken && data_taken); i++) {
      CHECK(i < 100, "a write to %x is not taken", address);
      tick();
      if (aw_) top.s_axil_awvalid = 0, address_taken = true;
      if (w_) top.s_axil_wvalid = top.s_axil_wdata = 0, data_taken = true;
    }
    wait_some();
    top.s_axil_bready = 1;
    do tick();
    while (!b_);
    top.s_axil_bready = 0;
  }

  uint32_t read(uint32_t address) {
    wait_some();
    top.s_axil_araddr = address;
    top.s_axil_arvalid = 1;
    do tick();
    while (!ar_);
    top.s_axil_arvalid = 0;
    wait_some();
    top.s_axil_rready = 1;
    do tick();
    while (!r_);
    top.s_axil_rready = 0;
    return read_;
  }

  uint32_t ring_register(int ring, uint32_t offset) const {
    return XE(RINGS_OFFSET) + XE(RINGS_STRIDE) * ring + offset;
  }
  void ring_write(int ring, uint32_t offset, uint32_t value) {
    write(ring_register(ring, offset), value);
  }
  uint32_t ring_read(int ring, uint32_t offset) { return read(ring_register(ring, offset)); }
  bool interrupt(int bit) const { return top.__SYM__interrupt >> bit & 1; }

  void wait_ready() {
    for (int i = 0; !(read(XE(REG_STATUS)) & 1); i++) CHECK(i < 10000, "never ready");
  }
  void wait_idle() {
    for (int i = 0; !(read(XE(REG_STATUS)) & 2); i++) CHECK(i < 100000, "never idle");
  }

  void ring_on(int r, int log2, bool when_empty = false) {
    Ring& ring = rings[r];
    ring.log2 = log2;
    ring.tail = ring.head = 0;
    std::memset(memory.at(ring.cq(), 16 << log2), 0, 16 << log2);
    ring_write(r, XE(RING_SQ_LO), static_cast<uint32_t>(ring.sq()));
    ring_write(r, XE(RING_SQ_HI), static_cast<uint32_t>(ring.sq() >> 32));
    ring_write(r, XE(RING_CQ_LO), static_cast<uint32_t>(ring.cq()));
    ring_write(r, XE(RING_CQ_HI), static_cast<uint32_t>(ring.cq() >> 32));
    ring_write(r, XE(RING_SIZE), log2);
    ring_write(r, XE(RING_CONTROL), 1 | when_empty << 1);
    const uint32_t state = ring_read(r, XE(RING_STATE));
    CHECK(state == 1, "ring %d starts with state %x", r, state);
  }
  void ring_off(int r) {
    ring_write(r, XE(RING_CONTROL), 0);
    for (int i = 0; ring_read(r, XE(RING_STATE)) & 1; i++) CHECK(i < 100000, "ring %d stays on", r);
  }

  int key_command(int slot, int cipher, const model::Bytes& key, int command = 1, int bits = KEY_BITS) {
    for (size_t i = 0; i < key.size(); i += 4) {
      uint32_t word;
      std::memcpy(&word, &key[i], 4);
      write(XE(REG_KEY_DATA) + static_cast<uint32_t>(i), word);
    }
    write(XE(REG_KEY_CMD), slot | cipher << XE(KEY_CMD_CIPHER_LOW) |
                               (bits == 256) << XE(KEY_CMD_KEY_BITS_LOW) | command << XE(KEY_CMD_COMMAND_LOW));
    uint32_t status;
    for (int i = 0; (status = read(XE(REG_KEY_STATUS))) & 1; i++) CHECK(i < 100000, "KEY_CMD never ends");
    return status >> XE(KEY_STATUS_RESULT_LOW);
  }

  // Puts a submission in its place; `doorbell` tells the engine.
  void submit(int r, const uint8_t* sqe) {
    Ring& ring = rings[r];
    std::memcpy(memory.at(ring.sq() + 64 * (ring.tail % ring.size()), 64), sqe, 64);
    ring.tail++;
  }
  void doorbell(int r) { ring_write(r, XE(RING_TAIL), rings[r].tail); }

  // The next completion, if it is there; CQ_HEAD is not written.
  bool poll(int r, Completion& completion) {
    Ring& ring = rings[r];
    const uint8_t* entry = memory.at(ring.cq() + 16 * (ring.head % ring.size()), 16);
    const int phase = !(ring.head >> ring.log2 & 1);
    if (entry[XE(CQE_PHASE)] != phase) return false;
    std::memcpy(&completion.cookie, entry, 8);
    std::memcpy(&completion.units, entry + XE(CQE_UNITS_DONE), 4);
    completion.status = entry[XE(CQE_STATUS)];
    completion.sq_head = entry[XE(CQE_SQ_HEAD)] | entry[XE(CQE_SQ_HEAD) + 1] << 8;
    ring.head++;
    CHECK(completion.sq_head == ring.head, "sq_head %d after %d completions", completion.sq_head, ring.head);
    return true;
  }
  void acknowledge(int r) { ring_write(r, XE(RING_CQ_HEAD), rings[r].head); }

  uint64_t counter(uint32_t address) { return read(address) | static_cast<uint64_t>(read(address + 4)) << 32; }
  std::vector<uint64_t> counters() {
    write(XE(REG_COUNTER_CTRL), 1);
    std::vector<uint64_t> values;
    for (int i = 0; i < XE(COUNTERS); i++) values.push_back(counter(XE(REG_COUNTER_TOTAL) + 8 * i));
    uint64_t sum = 0;
    for (int i = 1; i <= 7; i++) sum += values[i];
    CHECK(sum == values[0], "rows sum to %llu of %llu cycles", static_cast<unsigned long long>(sum),
          static_cast<unsigned long long>(values[0]));
    return values;
  }

 private:
  void wait_some() {
    if (dawdle) {
      for (uint64_t i = random.below(4); i > 0; i--) tick();
    }
  }

  bool aw_ = false, w_ = false, b_ = false, ar_ = false, r_ = false;
  uint32_t read_ = 0;
};
