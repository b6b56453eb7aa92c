// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The modes by name, as the list of designs gives them.
#pragma once

#include "aez10.h"
#include "eme2.h"
#include "fast.h"
#include "hctr2.h"
#include "mask.h"
#include "xcb.h"
#include "xts.h"

namespace model {

// What a test has to know of a mode besides what it computes.
struct Mode {
  // Bytes of the whole key for AES keys of that many.
  size_t (*key_bytes)(size_t aes_key_bytes);
  size_t tweak_bytes;
  // dm-crypt's name of the same cipher, or null.
  const char* dm_crypt;
  std::unique_ptr<Cipher> (*make)(const Bytes& key);
};

// Null if there is none of that name.
inline const Mode* find_mode(const std::string& name) {
  constexpr auto one = [](size_t n) { return n; };
  constexpr auto two = [](size_t n) { return 2 * n; };
  constexpr auto more = [](size_t n) { return 32 + n; };
  using Made = std::unique_ptr<Cipher>;
  struct Entry {
    const char* name;
    Mode mode;
  };
  static const Entry entries[] = {
      {"xts", {two, 16, "aes-xts-plain64", [](const Bytes& key) -> Made {
         return std::make_unique<Xts>(key);
       }}},
      {"fast-brw", {one, 16, "capi:fast(aes)-plain64", [](const Bytes& key) -> Made {
         return std::make_unique<Fast>(key, true);
       }}},
      {"fast-horner", {one, 16, "capi:fast_horner(aes)-plain64", [](const Bytes& key) -> Made {
         return std::make_unique<Fast>(key, false);
       }}},
      {"xcb", {one, 16, "capi:xcb(aes)-plain64", [](const Bytes& key) -> Made {
         return std::make_unique<Xcb>(key);
       }}},
      {"eme2", {more, 16, "capi:eme2(aes)-plain64", [](const Bytes& key) -> Made {
         return std::make_unique<Eme2>(key);
       }}},
      {"aez10", {one, 16, "capi:aez10(aes)-plain64", [](const Bytes& key) -> Made {
         return std::make_unique<Aez10>(key, true);
       }}},
      {"aez10-no-tweak", {one, 16, nullptr, [](const Bytes& key) -> Made {
         return std::make_unique<Aez10>(key, false);
       }}},
      {"hctr2", {one, 32, "aes-hctr2-plain64", [](const Bytes& key) -> Made {
         return std::make_unique<Hctr2>(key);
       }}},
      {"mask", {one, 16, nullptr, [](const Bytes& key) -> Made {
         return std::make_unique<Mask>(key);
       }}},
  };
  for (const Entry& entry : entries) {
    if (name == entry.name) return &entry.mode;
  }
  return nullptr;
}

}  // namespace model
