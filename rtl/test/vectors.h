// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Reads what vectors.py writes.
#pragma once

#include <fstream>
#include <sstream>

#include "harness.h"
#include "models/models.h"

struct Vector {
  std::string model;
  model::Bytes key, tweak;
  size_t sector_bytes;
  // Whole sectors; the tweaks after the first count up by one.
  model::Blocks plain, cipher;
};

inline model::Bytes from_hex(const std::string& text) {
  model::Bytes bytes;
  if (text == "-") return bytes;
  CHECK(text.size() % 2 == 0, "an odd number of digits");
  for (size_t i = 0; i < text.size(); i += 2)
    bytes.push_back(static_cast<uint8_t>(std::stoi(text.substr(i, 2), nullptr, 16)));
  return bytes;
}

inline model::Blocks to_blocks(const model::Bytes& bytes) {
  model::Blocks blocks;
  for (size_t i = 0; i < bytes.size(); i += 16) blocks.push_back(model::to_block(bytes, i));
  return blocks;
}

// A tweak plus n, as a little-endian integer.
inline void count_up(model::Bytes& tweak, uint64_t n) {
  for (auto& byte : tweak) {
    n += byte;
    byte = static_cast<uint8_t>(n);
    n >>= 8;
  }
}

inline std::vector<Vector> read_vectors(const char* path) {
  std::ifstream file(path);
  CHECK(file, "cannot read %s", path);
  std::vector<Vector> vectors;
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string name, key, tweak, plain, cipher;
    size_t size = 0;
    CHECK(fields >> name >> key >> tweak >> size >> plain >> cipher, "%s: a bad line", path);
    vectors.push_back({name, from_hex(key), from_hex(tweak), size, to_blocks(from_hex(plain)),
                       to_blocks(from_hex(cipher))});
  }
  return vectors;
}
