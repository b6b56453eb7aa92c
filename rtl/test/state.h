// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What a model of Verilator's (--savable) holds: every register and every memory.
#pragma once

#include <verilated_save.h>

#include "models/cipher.h"

class State : public VerilatedSerialize {
 public:
  template <typename Top>
  explicit State(Top& top) {
    m_isOpen = true;
    *this << top;
    flush();
  }
  ~State() override { m_isOpen = false; }
  void close() VL_MT_UNSAFE_ONE override { flush(); }
  void flush() VL_MT_UNSAFE_ONE override {
    bytes.insert(bytes.end(), m_bufp, m_cp);
    m_cp = m_bufp;
  }
  model::Bytes bytes;
};
