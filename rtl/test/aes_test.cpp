// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The AES cores: known answers of FIPS 197, latency, random blocks under two keys
// in flight together with bubbles and stalls, key change and reset.

#include <deque>
#include <map>

#include "Vaes_tb.h"
#include "harness.h"

#ifndef KEY_BITS
#error "KEY_BITS is 128 or 256"
#endif

namespace {

constexpr size_t kKeyBytes = KEY_BITS / 8;
constexpr int kRounds = KEY_BITS / 32 + 6;
// FIPS 197, appendix C.1 and C.3: 00112233... under 00010203...
const model::Block kPlain = {0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77,
                             0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff};
const model::Block kCipher =
    KEY_BITS == 128 ? model::Block{0x69, 0xc4, 0xe0, 0xd8, 0x6a, 0x7b, 0x04, 0x30,
                                   0xd8, 0xcd, 0xb7, 0x80, 0x70, 0xb4, 0xc5, 0x5a}
                    : model::Block{0x8e, 0xa2, 0xb7, 0xca, 0x51, 0x67, 0x45, 0xbf,
                                   0xea, 0xfc, 0x49, 0x90, 0x4b, 0x49, 0x60, 0x89};

// Loads a key into a slot and returns the cycles until all round keys are there.
int load_key(Vaes_tb& top, int slot, const std::vector<uint8_t>& key) {
  put(top.key_i, key.data(), key.size());
  top.key_valid_i = static_cast<uint8_t>(1 << slot);
  CHECK(top.key_ready_o >> slot & 1, "key slot %d is not ready", slot);
  cycle(top);
  top.key_valid_i = 0;
  int cycles = 1;
  while (!(top.keys_valid_o >> slot & 1)) {
    cycle(top);
    CHECK(++cycles < 100, "the key schedule does not end");
  }
  return cycles;
}

void known_answers(Vaes_tb& top) {
  const int cycles = load_key(top, 0, counting(kKeyBytes));
  CHECK(cycles == kRounds + 2 - static_cast<int>(kKeyBytes / 16), "key loading took %d", cycles);
  top.valid_i = 1;
  top.sel_i = 0;
  put(top.block_i, kPlain);
  cycle(top);
  put(top.block_i, kCipher);
  cycle(top);
  top.valid_i = 0;
  for (int i = 2; i <= kRounds; i++) {
    CHECK(!top.pec_valid_o, "a block came out after %d cycles", i);
    cycle(top);
  }
  CHECK(top.pec_valid_o, "encryption takes more than %d cycles", kRounds + 1);
  CHECK(get(top.pec_block_o) == kCipher, "FIPS 197, encryption");
  cycle(top);
  CHECK(top.pdc_valid_o && get(top.pdc_block_o) == kPlain, "FIPS 197, decryption");
  cycle(top);
  CHECK(!top.pec_valid_o && !top.pdc_valid_o, "more came out than went in");

  put(top.block_i, kCipher);
  top.sdc_valid_i = 1;
  CHECK(top.sdc_ready_o, "the sequential core is not ready");
  cycle(top);
  top.sdc_valid_i = 0;
  int latency = 1;
  while (!top.sdc_valid_o) {
    CHECK(!top.sdc_ready_o, "ready with a block under way");
    cycle(top);
    CHECK(++latency < 100, "the sequential core does not end");
  }
  CHECK(latency == kRounds + 1, "sequential decryption took %d cycles", latency);
  CHECK(get(top.sdc_block_o) == kPlain, "FIPS 197, sequential decryption");
}

// Blocks under both keys, in random order, with bubbles.
void random_blocks(Vaes_tb& top, Random& random, int blocks) {
  std::vector<model::Aes> keys;
  for (int slot = 0; slot < 2; slot++) {
    std::vector<uint8_t> key(kKeyBytes);
    random.fill(key.data(), key.size());
    keys.emplace_back(key);
    load_key(top, slot, key);
  }
  struct Sent {
    model::Block block;
    int key;
    uint16_t tag;
  };
  std::deque<Sent> in_flight;
  int sent = 0, received = 0;
  while (received < blocks) {
    top.valid_i = sent < blocks && random.below(8) != 0;
    Sent next{random.block(), static_cast<int>(random.below(2)), static_cast<uint16_t>(sent)};
    put(top.block_i, next.block);
    top.sel_i = static_cast<uint8_t>(next.key);
    top.tag_i = next.tag;
    top.clk_i = 0;
    top.eval();
    CHECK(top.pec_valid_o == top.pdc_valid_o, "the pipelines have the same length");
    if (top.pec_valid_o) {
      CHECK(!in_flight.empty(), "a block from nowhere");
      const Sent& first = in_flight.front();
      CHECK(top.pec_tag_o == first.tag && top.pdc_tag_o == first.tag, "tag");
      CHECK(get(top.pec_block_o) == keys[first.key].encrypt(first.block), "block %d", received);
      CHECK(get(top.pdc_block_o) == keys[first.key].decrypt(first.block), "block %d", received);
      in_flight.pop_front();
      received++;
    }
    if (top.valid_i) {
      in_flight.push_back(next);
      sent++;
    }
    cycle(top);
  }
  top.valid_i = 0;
}

// One block after the other, under either key.
void sequential_blocks(Vaes_tb& top, Random& random, int blocks) {
  std::vector<model::Aes> keys;
  for (int slot = 0; slot < 2; slot++) {
    std::vector<uint8_t> key(kKeyBytes);
    random.fill(key.data(), key.size());
    keys.emplace_back(key);
    load_key(top, slot, key);
  }
  for (int i = 0; i < blocks; i++) {
    const auto block = random.block();
    const auto key = static_cast<uint8_t>(random.below(2));
    put(top.block_i, block);
    top.sel_i = key;
    top.tag_i = static_cast<uint16_t>(i);
    top.sdc_valid_i = 1;
    cycle(top);
    top.sdc_valid_i = 0;
    // Key and tag were taken along with the block.
    top.sel_i = !key;
    top.tag_i = 0;
    while (!top.sdc_valid_o) cycle(top);
    CHECK(get(top.sdc_block_o) == keys[key].decrypt(block), "sequential block %d", i);
    CHECK(top.sdc_tag_o == static_cast<uint16_t>(i), "sequential block %d, tag", i);
    cycle(top);
    CHECK(!top.sdc_valid_o, "a block comes out twice");
  }
}

// Nothing of key or data is left.
void wiped(Vaes_tb& top) {
  load_key(top, 0, counting(kKeyBytes));
  top.valid_i = 1;
  put(top.block_i, kPlain);
  for (int i = 0; i < 30; i++) cycle(top);
  CHECK(top.any_key_bit_o && top.pec_valid_o, "there is nothing to wipe");
  top.valid_i = 0;
  reset(top);
  CHECK(!top.any_key_bit_o, "round keys are left");
  CHECK(top.keys_valid_o == 0, "keys are said to be valid");
  for (int i = 0; i < 30; i++) {
    CHECK(!top.pec_valid_o && !top.pdc_valid_o && !top.sdc_valid_o, "a block is left");
    CHECK(get(top.pec_block_o) == model::Block{} || i > 0, "data is left at the output");
    cycle(top);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Verilated::commandArgs(argc, argv);
  Vaes_tb top;
  top.valid_i = 0;
  top.sdc_valid_i = 0;
  top.key_valid_i = 0;
  Random random(KEY_BITS);
  reset(top);
  known_answers(top);
  for (int i = 0; i < 10; i++) random_blocks(top, random, 1000);
  sequential_blocks(top, random, 1000);
  wiped(top);
  known_answers(top);
  std::printf("AES-%d: known answers, 10000 random blocks, wiping: passed\n", KEY_BITS);
  return 0;
}
