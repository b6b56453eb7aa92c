// SPDX-License-Identifier: MIT OR Apache-2.0
//
// EME2-AES (IEEE 1619.2-2010), whole blocks and a tweak of whole blocks. Key: K_AD,
// K_ECB, K_AES.
#pragma once

#include "cipher.h"

namespace model {

class Eme2 : public Cipher {
 public:
  explicit Eme2(const Bytes& key)
      : tweak_key_(to_block(key, 0)),
        ecb_key_(to_block(key, 16)),
        aes_(part(key, 32, key.size() - 32)) {}

  Blocks crypt(bool decrypt, const Bytes& tweak, const Blocks& sector) const override {
    Block t{};
    Block m = times_x(tweak_key_);
    for (size_t i = 0; i < tweak.size(); i += 16) {
      t = t ^ aes_.encrypt(to_block(tweak, i) ^ m) ^ m;
      m = times_x(m);
    }
    if (tweak.empty()) t = aes_.encrypt(tweak_key_);

    Blocks blocks = sector;
    Block mask = ecb_key_;
    Block mp = t;
    for (Block& block : blocks) {
      block = aes_.crypt(decrypt, block ^ mask);
      mp = mp ^ block;
      mask = times_x(mask);
    }
    const Block mc1 = aes_.crypt(decrypt, mp);
    const Block m1 = mp ^ mc1;
    m = m1;
    Block first = mc1 ^ t;
    for (size_t j = 1; j < blocks.size(); j++) {
      if (j % 128 != 0) {
        m = times_x(m);
        blocks[j] = blocks[j] ^ m;
      } else {
        const Block p = blocks[j] ^ m1;
        const Block c = aes_.crypt(decrypt, p);
        m = p ^ c;
        blocks[j] = c ^ m1;
      }
      first = first ^ blocks[j];
    }
    blocks[0] = first;
    mask = ecb_key_;
    for (Block& block : blocks) {
      block = aes_.crypt(decrypt, block) ^ mask;
      mask = times_x(mask);
    }
    return blocks;
  }

 private:
  Block tweak_key_, ecb_key_;
  Aes aes_;
};

}  // namespace model
