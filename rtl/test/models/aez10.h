// SPDX-License-Identifier: MIT OR Apache-2.0
//
// AEZ10: AEZ v5's core with whole AES calls, masks (row + 1) I + index J, an even
// number of whole blocks. Without a tweak (Delta = 0) it is what the FPGA paper built.
#pragma once

#include "cipher.h"

namespace model {

class Aez10 : public Cipher {
 public:
  Aez10(const Bytes& key, bool tweaked)
      : aes_(key),
        tweaked_(tweaked),
        i_(aes_.encrypt(big_endian(0))),
        j_(aes_.encrypt(big_endian(1))) {}

  Blocks crypt(bool decrypt, const Bytes& tweak, const Blocks& sector) const override {
    const size_t pairs = sector.size() / 2 - 1;
    const Block delta =
        tweaked_ ? e(3, 1, Block{}) ^ e(4, 1, to_block(tweak)) : Block{};
    const unsigned before = decrypt ? 2 : 1, after = decrypt ? 1 : 2;
    const Block& mx = sector[2 * pairs];
    const Block& my = sector[2 * pairs + 1];

    Blocks w, x;
    Block sum_x{}, sum_y{};
    for (size_t i = 0; i < pairs; i++) {
      w.push_back(sector[2 * i] ^ e(1, i + 1, sector[2 * i + 1]));
      x.push_back(sector[2 * i + 1] ^ e(0, 0, w[i]));
      sum_x = sum_x ^ x[i];
    }
    const Block sx = mx ^ delta ^ sum_x ^ e(0, before, my);
    const Block sy = my ^ e(-1, before, sx);
    const Block s = sx ^ sy;
    Blocks out;
    for (size_t i = 0; i < pairs; i++) {
      const Block sub = e(2, i + 1, s);
      const Block y = w[i] ^ sub;
      const Block z = x[i] ^ sub;
      const Block second = y ^ e(0, 0, z);
      out.push_back(z ^ e(1, i + 1, second));
      out.push_back(second);
      sum_y = sum_y ^ y;
    }
    const Block cy = sx ^ e(-1, after, sy);
    out.push_back(sy ^ delta ^ sum_y ^ e(0, after, cy));
    out.push_back(cy);
    return out;
  }

 private:
  // n times a block: the bits of n are the coefficients.
  static Block multiple(size_t n, const Block& a) {
    const Poly product = multiply(Poly{n, 0}, poly(swap_bytes(a)), kModulus);
    return swap_bytes(block(product));
  }

  Block e(int row, size_t index, const Block& in) const {
    return aes_.encrypt(in ^ multiple(static_cast<size_t>(row + 1), i_) ^ multiple(index, j_));
  }

  Aes aes_;
  bool tweaked_;
  Block i_, j_;
};

}  // namespace model
