// SPDX-License-Identifier: MIT OR Apache-2.0
//
// GF(2^128) in the layouts that the modes use, by shifts and four bits at a time,
// apart from the RTL's method.
#pragma once

#include "aes.h"

namespace model {

// A polynomial of degree below 128, bit i of the pair being the coefficient of x^i.
struct Poly {
  uint64_t low = 0;
  uint64_t high = 0;
};

inline Poly poly(const Block& block) {
  Poly p;
  for (int i = 7; i >= 0; i--) {
    p.low = p.low << 8 | block[i];
    p.high = p.high << 8 | block[i + 8];
  }
  return p;
}

inline Block block(Poly p) {
  Block b;
  for (int i = 0; i < 8; i++) {
    b[i] = static_cast<uint8_t>(p.low >> (8 * i));
    b[i + 8] = static_cast<uint8_t>(p.high >> (8 * i));
  }
  return b;
}

// x^128 in the field of XTS, FAST, EME2, GCM and AEZ, and in POLYVAL's.
constexpr Poly kModulus = {0x87, 0};
constexpr Poly kPolyvalModulus = {1, 0xc200000000000000};

inline Poly times_x(Poly a, Poly modulus) {
  const uint64_t carry = 0 - (a.high >> 63);
  return {a.low << 1 ^ (modulus.low & carry),
          (a.high << 1 | a.low >> 63) ^ (modulus.high & carry)};
}

inline Poly multiply(Poly a, Poly b, Poly modulus) {
  Poly multiple[16];
  for (int i = 1; i < 16; i++) {
    const Poly half = times_x(multiple[i / 2], modulus);
    multiple[i] = i & 1 ? Poly{half.low ^ a.low, half.high ^ a.high} : half;
  }
  Poly product;
  for (int shift = 124; shift >= 0; shift -= 4) {
    for (int i = 0; i < 4; i++) product = times_x(product, modulus);
    const Poly& part = multiple[(shift < 64 ? b.low >> shift : b.high >> (shift - 64)) & 15];
    product.low ^= part.low;
    product.high ^= part.high;
  }
  return product;
}

// Times x, and a product, in the layout of XTS, FAST and EME2 ("little").
inline Block times_x(const Block& a) { return block(times_x(poly(a), kModulus)); }

inline Block multiply(const Block& a, const Block& b) {
  return block(multiply(poly(a), poly(b), kModulus));
}

// Between "little" and GCM's layout: bits reversed in each byte.
inline Block swap_gcm(Block a) {
  for (auto& byte : a) {
    uint8_t reversed = 0;
    for (int i = 0; i < 8; i++) reversed |= static_cast<uint8_t>((byte >> i & 1) << (7 - i));
    byte = reversed;
  }
  return a;
}

// Between "little" and AEZ's layout: bytes in reverse order.
inline Block swap_bytes(const Block& a) {
  Block reversed;
  for (int i = 0; i < 16; i++) reversed[i] = a[15 - i];
  return reversed;
}

// n as a block, least significant byte first.
inline Block little_endian(uint64_t n) { return block(Poly{n, 0}); }

// n as a block, least significant byte last.
inline Block big_endian(uint64_t n) { return swap_bytes(little_endian(n)); }

}  // namespace model
