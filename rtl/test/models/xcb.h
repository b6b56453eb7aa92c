// SPDX-License-Identifier: MIT OR Apache-2.0
//
// XCB-AES (IEEE 1619.2-2010), whole blocks. Broken (ePrint 2024/1554); the paper
// measured it.
#pragma once

#include "cipher.h"

namespace model {

class Xcb : public Cipher {
 public:
  explicit Xcb(const Bytes& key)
      : hash_key_(swap_gcm(Aes(key).encrypt(Block{}))),
        first_(derive(key, 1)),
        last_(derive(key, 3)),
        counter_(derive(key, 5)) {}

  Blocks crypt(bool decrypt, const Bytes& tweak, const Blocks& sector) const override {
    const Blocks rest(sector.begin(), sector.end() - 1);
    const Block t = to_block(tweak);
    const size_t tweak_bits = 8 * tweak.size(), bits = 128 * rest.size();
    Blocks out;
    if (!decrypt) {
      const Block c = first_.encrypt(sector.back());
      const Block d = c ^ hash1(t, tweak_bits, rest, bits);
      out = counter(d, rest);
      out.push_back(last_.decrypt(d ^ hash2(t, tweak_bits, out, bits)));
    } else {
      const Block f = last_.encrypt(sector.back());
      const Block d = f ^ hash2(t, tweak_bits, rest, bits);
      out = counter(d, rest);
      out.push_back(first_.decrypt(d ^ hash1(t, tweak_bits, out, bits)));
    }
    return out;
  }

 private:
  // The key from the encryptions of n and n + 1.
  static Aes derive(const Bytes& key, uint64_t n) {
    const Aes aes(key);
    Bytes derived;
    for (uint64_t i : {n, n + 1}) {
      const Block block = aes.encrypt(big_endian(i));
      derived.insert(derived.end(), block.begin(), block.end());
    }
    return Aes(part(derived, 0, key.size()));
  }

  static Block lengths(uint64_t a, uint64_t b) { return swap_bytes(block(Poly{b, a})); }

  Block ghash(const Blocks& blocks) const {
    Block sum{};
    for (const Block& x : blocks) sum = multiply(sum ^ swap_gcm(x), hash_key_);
    return swap_gcm(sum);
  }

  Block hash1(const Block& tweak, size_t tweak_bits, const Blocks& data, size_t bits) const {
    Blocks all = {Block{}, tweak};
    all.insert(all.end(), data.begin(), data.end());
    all.push_back(Block{});
    all.push_back(lengths(tweak_bits + 128, bits + 128));
    return ghash(all);
  }

  Block hash2(const Block& tweak, size_t tweak_bits, const Blocks& data, size_t bits) const {
    Blocks all = {tweak, Block{}};
    all.insert(all.end(), data.begin(), data.end());
    all.push_back(lengths(tweak_bits + 128, bits));
    all.push_back(lengths(tweak_bits + 128, bits + 128));
    return ghash(all);
  }

  // The last four bytes count, big-endian, without a carry beyond them.
  Blocks counter(Block w, const Blocks& data) const {
    Blocks out;
    for (const Block& block : data) {
      out.push_back(block ^ counter_.encrypt(w));
      for (int i = 15; i >= 12; i--) {
        if (++w[i] != 0) break;
      }
    }
    return out;
  }

  Block hash_key_;
  Aes first_, last_, counter_;
};

}  // namespace model
