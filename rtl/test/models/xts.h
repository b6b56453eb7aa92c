// SPDX-License-Identifier: MIT OR Apache-2.0
//
// XTS-AES (IEEE 1619-2007), whole blocks. Key: K1 (data), K2 (tweak).
#pragma once

#include "cipher.h"

namespace model {

class Xts : public Cipher {
 public:
  explicit Xts(const Bytes& key)
      : data_(part(key, 0, key.size() / 2)), tweak_(part(key, key.size() / 2, key.size() / 2)) {}

  Blocks crypt(bool decrypt, const Bytes& tweak, const Blocks& sector) const override {
    Block mask = tweak_.encrypt(to_block(tweak));
    Blocks out;
    for (const Block& block : sector) {
      out.push_back(data_.crypt(decrypt, block ^ mask) ^ mask);
      mask = times_x(mask);
    }
    return out;
  }

 private:
  Aes data_, tweak_;
};

}  // namespace model
