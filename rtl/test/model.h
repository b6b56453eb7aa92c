// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A slow software model, straight from the standards and apart from the RTL: AES
// (FIPS 197) with an S-box worked out by inversion, and GF(2^128).
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

namespace model {

using Block = std::array<uint8_t, 16>;

inline Block operator^(Block a, const Block& b) {
  for (int i = 0; i < 16; i++) a[i] ^= b[i];
  return a;
}

inline uint8_t multiply8(uint8_t a, uint8_t b) {
  uint8_t product = 0;
  for (; b; b >>= 1) {
    if (b & 1) product ^= a;
    a = static_cast<uint8_t>(a << 1 ^ (a & 0x80 ? 0x1b : 0));
  }
  return product;
}

// AES under one key.
class Aes {
 public:
  explicit Aes(const std::vector<uint8_t>& key) : rounds_(key.size() / 4 + 6) {
    for (int a = 0; a < 256; a++) {
      uint8_t inverse = 0;
      for (int b = 1; b < 256; b++) {
        if (multiply8(static_cast<uint8_t>(a), static_cast<uint8_t>(b)) == 1)
          inverse = static_cast<uint8_t>(b);
      }
      uint8_t s = 0x63;
      for (int shift : {0, 1, 2, 3, 4})
        s ^= static_cast<uint8_t>(inverse << shift | inverse >> (8 - shift));
      sbox_[a] = s;
      inverse_sbox_[s] = static_cast<uint8_t>(a);
    }
    std::vector<std::array<uint8_t, 4>> words;
    for (size_t i = 0; i < key.size(); i += 4)
      words.push_back({key[i], key[i + 1], key[i + 2], key[i + 3]});
    const size_t key_words = words.size();
    uint8_t constant = 1;
    while (words.size() < 4 * (rounds_ + 1)) {
      auto word = words.back();
      const size_t i = words.size();
      if (i % key_words == 0) {
        word = {sbox_[word[1]], sbox_[word[2]], sbox_[word[3]], sbox_[word[0]]};
        word[0] ^= constant;
        constant = multiply8(constant, 2);
      } else if (key_words == 8 && i % 8 == 4) {
        for (auto& byte : word) byte = sbox_[byte];
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
      for (int i = 0; i < 16; i++) y[i] = sbox_[x[(i + 4 * (i % 4)) % 16]];
      x = (round == rounds_ ? y : mix(y, {2, 3, 1, 1})) ^ round_keys_[round];
    }
    return x;
  }

  Block decrypt(Block x) const {
    for (size_t round = rounds_; round >= 1; round--) {
      x = x ^ round_keys_[round];
      if (round != rounds_) x = mix(x, {14, 11, 13, 9});
      Block y;
      for (int i = 0; i < 16; i++) y[(i + 4 * (i % 4)) % 16] = inverse_sbox_[x[i]];
      x = y;
    }
    return x ^ round_keys_[0];
  }

 private:
  static Block mix(const Block& x, const std::array<uint8_t, 4>& row) {
    Block y{};
    for (int i = 0; i < 16; i++) {
      for (int j = 0; j < 4; j++)
        y[i] ^= multiply8(row[(j - i % 4 + 4) % 4], x[i / 4 * 4 + j]);
    }
    return y;
  }

  size_t rounds_;
  uint8_t sbox_[256];
  uint8_t inverse_sbox_[256];
  std::vector<Block> round_keys_;
};

// Times x in the layout of XTS and FAST.
inline Block times_x(const Block& a) {
  Block doubled;
  uint8_t carry = 0;
  for (int i = 0; i < 16; i++) {
    doubled[i] = static_cast<uint8_t>(a[i] << 1 | carry);
    carry = a[i] >> 7;
  }
  if (carry) doubled[0] ^= 0x87;
  return doubled;
}

// A product in that layout.
inline Block multiply(Block a, const Block& b) {
  Block product{};
  for (int i = 0; i < 128; i++) {
    if (b[i / 8] >> (i % 8) & 1) product = product ^ a;
    a = times_x(a);
  }
  return product;
}

}  // namespace model
