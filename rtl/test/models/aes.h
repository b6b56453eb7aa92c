// SPDX-License-Identifier: MIT OR Apache-2.0
//
// AES straight from FIPS 197 and apart from the RTL: the S-box is worked out by
// inversion, and the tables for MixColumns from multiplication in AES's field.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace model {

using Block = std::array<uint8_t, 16>;

inline Block operator^(Block a, const Block& b) {
  for (int i = 0; i < 16; i++) a[i] ^= b[i];
  return a;
}

// In AES's field, bit by bit.
inline uint8_t multiply8(uint8_t a, uint8_t b) {
  uint8_t product = 0;
  for (; b; b >>= 1) {
    if (b & 1) product ^= a;
    a = static_cast<uint8_t>(a << 1 ^ (a & 0x80 ? 0x1b : 0));
  }
  return product;
}

// What every key shares.
struct AesTables {
  uint8_t sbox[256];
  uint8_t inverse_sbox[256];
  uint8_t times[16][256];

  AesTables() {
    for (int a = 0; a < 256; a++) {
      const auto byte = static_cast<uint8_t>(a);
      uint8_t inverse = 0;
      for (int b = 1; b < 256; b++) {
        if (multiply8(byte, static_cast<uint8_t>(b)) == 1) inverse = static_cast<uint8_t>(b);
      }
      uint8_t s = 0x63;
      for (int shift : {0, 1, 2, 3, 4})
        s ^= static_cast<uint8_t>(inverse << shift | inverse >> (8 - shift));
      sbox[a] = s;
      inverse_sbox[s] = byte;
      for (int b = 0; b < 16; b++) times[b][a] = multiply8(byte, static_cast<uint8_t>(b));
    }
  }

  static const AesTables& get() {
    static const AesTables tables;
    return tables;
  }
};

// AES under one key of 16 or 32 bytes.
class Aes {
 public:
  explicit Aes(const std::vector<uint8_t>& key)
      : tables_(AesTables::get()), rounds_(key.size() / 4 + 6) {
    std::vector<std::array<uint8_t, 4>> words;
    for (size_t i = 0; i < key.size(); i += 4)
      words.push_back({key[i], key[i + 1], key[i + 2], key[i + 3]});
    const size_t key_words = words.size();
    uint8_t constant = 1;
    while (words.size() < 4 * (rounds_ + 1)) {
      auto word = words.back();
      const size_t i = words.size();
      if (i % key_words == 0) {
        word = {tables_.sbox[word[1]], tables_.sbox[word[2]], tables_.sbox[word[3]],
                tables_.sbox[word[0]]};
        word[0] ^= constant;
        constant = multiply8(constant, 2);
      } else if (key_words == 8 && i % 8 == 4) {
        for (auto& byte : word) byte = tables_.sbox[byte];
      }
      for (int j = 0; j < 4; j++) word[j] ^= words[i - key_words][j];
      words.push_back(word);
    }
    for (size_t i = 0; i < words.size(); i += 4) {
      Block round_key;
      for (int j = 0; j < 16; j++) round_key[j] = words[i + j / 4][j % 4];
      round_keys_.push_back(round_key);
    }
  }

  const std::vector<Block>& round_keys() const { return round_keys_; }

  Block encrypt(Block x) const {
    x = x ^ round_keys_[0];
    for (size_t round = 1; round <= rounds_; round++) {
      Block y;
      for (int i = 0; i < 16; i++) y[i] = tables_.sbox[x[(i + 4 * (i % 4)) % 16]];
      x = (round == rounds_ ? y : mix<2, 3, 1, 1>(y)) ^ round_keys_[round];
    }
    return x;
  }

  Block decrypt(Block x) const {
    for (size_t round = rounds_; round >= 1; round--) {
      x = x ^ round_keys_[round];
      if (round != rounds_) x = mix<14, 11, 13, 9>(x);
      Block y;
      for (int i = 0; i < 16; i++) y[(i + 4 * (i % 4)) % 16] = tables_.inverse_sbox[x[i]];
      x = y;
    }
    return x ^ round_keys_[0];
  }

  Block crypt(bool decrypt, const Block& x) const {
    return decrypt ? this->decrypt(x) : encrypt(x);
  }

 private:
  // Each column times the matrix whose first row is given, the others rotated.
  template <int A, int B, int C, int D>
  Block mix(const Block& x) const {
    const auto& times = tables_.times;
    Block y;
    for (int i = 0; i < 16; i++) {
      const uint8_t* column = &x[i / 4 * 4];
      const int row = i % 4;
      y[i] = times[A][column[row]] ^ times[B][column[(row + 1) % 4]] ^
             times[C][column[(row + 2) % 4]] ^ times[D][column[(row + 3) % 4]];
    }
    return y;
  }

  const AesTables& tables_;
  size_t rounds_;
  std::vector<Block> round_keys_;
};

}  // namespace model
