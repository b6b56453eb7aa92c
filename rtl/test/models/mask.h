// SPDX-License-Identifier: MIT OR Apache-2.0
//
// No cipher: what bench_check.sv gives.
#pragma once

#include "cipher.h"

namespace model {

class Mask : public Cipher {
 public:
  explicit Mask(const Bytes& key) {
    const Block last = to_block(key, key.size() - 16);
    Poly doubled = poly(last);
    doubled = {doubled.low << 1, doubled.high << 1 | doubled.low >> 63};
    mask_ = to_block(key) ^ last ^ block(doubled);
  }

  Blocks crypt(bool decrypt, const Bytes& tweak, const Blocks& sector) const override {
    Blocks out;
    for (const Block& block : sector)
      out.push_back(block ^ mask_ ^ to_block(tweak) ^ little_endian(decrypt));
    return out;
  }

 private:
  Block mask_;
};

}  // namespace model
