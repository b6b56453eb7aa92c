// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The software models against vectors from elsewhere (vectors.py), both ways, and
// the field's product against one bit by bit.

#include <map>

#include "vectors.h"

using model::operator^;

namespace {

model::Blocks run(const model::Cipher& cipher, bool decrypt, const Vector& vector,
                  const model::Blocks& in) {
  model::Blocks out;
  model::Bytes tweak = vector.tweak;
  const size_t blocks = vector.sector_bytes / 16;
  for (size_t at = 0; at < in.size(); at += blocks) {
    const auto begin = in.begin() + static_cast<long>(at);
    const auto sector =
        cipher.crypt(decrypt, tweak, model::Blocks(begin, begin + static_cast<long>(blocks)));
    out.insert(out.end(), sector.begin(), sector.end());
    count_up(tweak, 1);
  }
  return out;
}

void products(Random& random) {
  for (int i = 0; i < 1000; i++) {
    const auto a = random.block(), b = random.block();
    for (const auto& modulus : {model::kModulus, model::kPolyvalModulus}) {
      auto power = model::poly(a);
      model::Block sum{};
      for (int bit = 0; bit < 128; bit++) {
        if (b[bit / 8] >> (bit % 8) & 1) sum = sum ^ model::block(power);
        power = model::times_x(power, modulus);
      }
      CHECK(sum == model::block(multiply(model::poly(a), model::poly(b), modulus)), "product");
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  CHECK(argc == 2, "usage: model_test VECTORS");
  Random random(1);
  products(random);
  std::map<std::string, int> passed;
  for (const Vector& vector : read_vectors(argv[1])) {
    const model::Mode* mode = model::find_mode(vector.model);
    CHECK(mode, "no model %s", vector.model.c_str());
    const auto cipher = mode->make(vector.key);
    const char* name = vector.model.c_str();
    CHECK(run(*cipher, false, vector, vector.plain) == vector.cipher,
          "%s, %zu-byte key, %zu-byte tweak, %zu bytes: encryption", name, vector.key.size(),
          vector.tweak.size(), vector.sector_bytes);
    CHECK(run(*cipher, true, vector, vector.cipher) == vector.plain,
          "%s, %zu-byte key, %zu-byte tweak, %zu bytes: decryption", name, vector.key.size(),
          vector.tweak.size(), vector.sector_bytes);
    passed[vector.model]++;
  }
  // Every mode has some.
  CHECK(passed["aez10-no-tweak"] == 2, "not the two vectors of AEZ10 without a tweak");
  for (const char* name :
       {"xts", "fast-brw", "fast-horner", "xcb", "eme2", "aez10", "hctr2"}) {
    CHECK(passed[name] >= 20, "only %d vectors of %s", passed[name], name);
    std::printf("model of %s: %d vectors passed, both ways\n", name, passed[name]);
  }
  return 0;
}
