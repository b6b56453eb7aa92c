// SPDX-License-Identifier: MIT OR Apache-2.0
//
// FAST (Chakraborty, Ghosh, Mancillas-Lopez, Sarkar), fixed length, with the BRW
// or the Horner hash. AES encryption only, both ways.
#pragma once

#include "cipher.h"

namespace model {

class Fast : public Cipher {
 public:
  Fast(const Bytes& key, bool brw) : aes_(key), brw_(brw), tau_(aes_.encrypt(Block{})) {}

  Blocks crypt(bool decrypt, const Bytes& tweak, const Blocks& sector) const override {
    const Blocks third(sector.begin() + 2, sector.end());
    const Block t = to_block(tweak);
    if (!decrypt) {
      const Block a1 = sector[0] ^ hash(third, t);
      const Block f1 = sector[1] ^ multiply(tau_, a1);
      const Block f2 = a1 ^ aes_.encrypt(f1);
      const Block b2 = f1 ^ aes_.encrypt(f2);
      const Blocks c3 = counter(f1 ^ f2, third);
      return join(f2 ^ multiply(tau_, b2), b2 ^ second_hash(c3, t), c3);
    }
    const Block b2 = sector[1] ^ second_hash(third, t);
    const Block f2 = sector[0] ^ multiply(tau_, b2);
    const Block f1 = b2 ^ aes_.encrypt(f2);
    const Block a1 = f2 ^ aes_.encrypt(f1);
    const Blocks p3 = counter(f1 ^ f2, third);
    return join(a1 ^ hash(p3, t), f1 ^ multiply(tau_, a1), p3);
  }

 private:
  static Blocks join(const Block& first, const Block& second, const Blocks& rest) {
    Blocks all = {first, second};
    all.insert(all.end(), rest.begin(), rest.end());
    return all;
  }

  Block power(size_t exponent) const {
    Block result = little_endian(1);
    for (size_t i = 0; i < exponent; i++) result = multiply(result, tau_);
    return result;
  }

  Block brw(const Block* m, size_t n) const {
    if (n == 0) return Block{};
    if (n == 1) return m[0];
    if (n == 2) return multiply(m[0], tau_) ^ m[1];
    if (n == 3) return multiply(tau_ ^ m[0], power(2) ^ m[1]) ^ m[2];
    size_t t = 4;
    Block tau_t = power(4);
    while (2 * t <= n) {
      t *= 2;
      tau_t = multiply(tau_t, tau_t);
    }
    return multiply(brw(m, t - 1), tau_t ^ m[t - 1]) ^ brw(m + t, n - t);
  }

  // h of the specification.
  Block hash(const Blocks& third, const Block& tweak) const {
    if (brw_) {
      Blocks all = third;
      all.push_back(tweak);
      return multiply(tau_, brw(all.data(), all.size()));
    }
    Block sum = little_endian(1);
    for (const Block& block : third) sum = multiply(sum, tau_) ^ block;
    sum = multiply(sum, tau_) ^ tweak;
    return multiply(sum, tau_);
  }

  // h' of the specification.
  Block second_hash(const Blocks& third, const Block& tweak) const {
    return multiply(tau_, hash(third, tweak));
  }

  Blocks counter(const Block& z, const Blocks& data) const {
    Blocks out;
    for (size_t i = 0; i < data.size(); i++)
      out.push_back(data[i] ^ aes_.encrypt(z ^ little_endian(i + 1)));
    return out;
  }

  Aes aes_;
  bool brw_;
  Block tau_;
};

}  // namespace model
