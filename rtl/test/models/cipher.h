// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What the models of the modes have in common.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "field.h"

namespace model {

using Bytes = std::vector<uint8_t>;
using Blocks = std::vector<Block>;

// A mode under one key: slow, plain, over one sector of whole blocks at a time.
class Cipher {
 public:
  virtual ~Cipher() = default;
  // The tweak has 16 bytes, for HCTR2 any number.
  virtual Blocks crypt(bool decrypt, const Bytes& tweak, const Blocks& sector) const = 0;
};

inline Block to_block(const Bytes& bytes, size_t at = 0) {
  Block block{};
  for (size_t i = 0; i < 16 && at + i < bytes.size(); i++) block[i] = bytes[at + i];
  return block;
}

inline Bytes part(const Bytes& bytes, size_t from, size_t len) {
  return Bytes(bytes.begin() + static_cast<long>(from), bytes.begin() + static_cast<long>(from + len));
}

}  // namespace model
