// SPDX-License-Identifier: MIT OR Apache-2.0
//
// HCTR2 (Crowley, Huckleberry, Biggers), whole blocks.
#pragma once

#include "cipher.h"

namespace model {

class Hctr2 : public Cipher {
 public:
  explicit Hctr2(const Bytes& key)
      : aes_(key), l_(aes_.encrypt(little_endian(1))) {
    // x^-128 in POLYVAL's field: x^127 + x^124 + x^121 + x^114 + 1.
    const Poly inverse = {1, 0x9204000000000000};
    key_ = multiply(poly(aes_.encrypt(Block{})), inverse, kPolyvalModulus);
  }

  Blocks crypt(bool decrypt, const Bytes& tweak, const Blocks& sector) const override {
    const Blocks rest(sector.begin() + 1, sector.end());
    const Block in = sector[0] ^ hash(tweak, rest);
    const Block out = aes_.crypt(decrypt, in);
    const Block s = in ^ out ^ l_;
    Blocks result = {Block{}};
    for (size_t i = 0; i < rest.size(); i++)
      result.push_back(rest[i] ^ aes_.encrypt(s ^ little_endian(i + 1)));
    result[0] = out ^ hash(tweak, Blocks(result.begin() + 1, result.end()));
    return result;
  }

 private:
  Block hash(const Bytes& tweak, const Blocks& message) const {
    Blocks all = {little_endian(2 * 8 * tweak.size() + 2)};
    for (size_t i = 0; i < tweak.size(); i += 16) all.push_back(to_block(tweak, i));
    all.insert(all.end(), message.begin(), message.end());
    Block sum{};
    for (const Block& x : all) sum = block(multiply(poly(sum ^ x), key_, kPolyvalModulus));
    return sum;
  }

  Aes aes_;
  Block l_;
  Poly key_;
};

}  // namespace model
