// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Runs the program on the computer, with its memory behind the bus, and compares what it leaves there
// with the reference model. Prints the cycles of each step as JSON.
//
// usage: simulate --program FILE --mode MODE [OPTION...]
//
//   --mode MODE           software, mixed, units, units-cpu or runs
//   --decrypt             in place, instead of encrypting from one place to another
//   --bytes N             of data, 65536 if it is not said
//   --request N           bytes a request, 4096
//   --read-latency N      cycles from an address to its first data, 40
//   --write-latency N     from the last data to the response, 20
//   --pace N              cycles that each 16 bytes which the co-processor writes are held back, 0
//   --spin N              cycles that the driver takes for each request to the co-processor at least, 0
//   --seed N              of keys and data

#include <Vsoc.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "bus_memory.h"
#include "models/models.h"
#include "software/soc.h"

namespace {

const char* const kModes[] = {"software", "mixed", "units", "units-cpu", "runs"};
const char* const kRows[] = {"other", "tweak", "iv_engine", "xor1", "xor2", "engine", "driver"};
static_assert(std::size(kRows) == SOC_ROWS, "a name for each row");
// What is between `START` and `STOP`, but not between the readings of the CPU's counter: a few
// instructions, which may have to come from memory.
constexpr int kSlackReads = 10;

struct Options {
  std::string program;
  uint32_t mode = 0, decrypt = 0, bytes = 65536, request = 4096, spin = 0;
  int read_latency = 40, write_latency = 20, pace = 0;
  uint64_t seed = 1;
};

[[noreturn]] void usage(const char* what) {
  std::fprintf(stderr, "simulate: %s; see the head of soc_test.cpp\n", what);
  std::exit(2);
}

Options parse(int argc, char** argv) {
  Options options;
  bool mode = false;
  for (int i = 1; i < argc; i++) {
    const std::string name = argv[i];
    if (name == "--decrypt") {
      options.decrypt = 1;
      continue;
    }
    if (++i == argc) usage((name + " takes a value").c_str());
    const std::string value = argv[i];
    const auto number = static_cast<uint32_t>(std::strtoul(argv[i], nullptr, 0));
    if (name == "--program") {
      options.program = value;
    } else if (name == "--mode") {
      for (uint32_t m = 0; m < std::size(kModes); m++) {
        if (value == kModes[m]) options.mode = m, mode = true;
      }
      if (!mode) usage("there is no such mode");
    } else if (name == "--bytes") {
      options.bytes = number;
    } else if (name == "--request") {
      options.request = number;
    } else if (name == "--read-latency") {
      options.read_latency = static_cast<int>(number);
    } else if (name == "--write-latency") {
      options.write_latency = static_cast<int>(number);
    } else if (name == "--pace") {
      options.pace = static_cast<int>(number);
    } else if (name == "--spin") {
      options.spin = number;
    } else if (name == "--seed") {
      options.seed = number;
    } else {
      usage(("there is no " + name).c_str());
    }
  }
  if (options.program.empty() || !mode) usage("--program and --mode are needed");
  if (options.bytes == 0 || options.bytes % SOC_SECTOR_BYTES || options.bytes > SOC_MAX_BYTES ||
      options.request == 0 || options.request % SOC_SECTOR_BYTES || options.request > SOC_MAX_REQUEST)
    usage("--bytes and --request are whole sectors, up to 1 MiB and 64 KiB");
  return options;
}

class Computer {
 public:
  explicit Computer(const Options& options)
      : options_(options), random_(options.seed), top_(std::make_unique<Vsoc>()),
        memory_(*top_, random_, 0, SOC_MEMORY_BYTES) {
    memory_.timing.latency = options.read_latency;
    memory_.timing.write_latency = options.write_latency;
    top_->pace_i = static_cast<uint16_t>(options.pace);
    load();
  }

  // Until the program ends.
  void run() {
    top_->rst_ni = 0;
    for (int i = 0; i < 4; i++) tick();
    top_->rst_ni = 1;
    // Nothing takes as long as AES on the CPU, or a co-processor that is held back.
    const uint64_t limit = now_ + 10000000 + options_.bytes / 16 * (20000 + 4ull * options_.pace + options_.spin);
    while (!ended_) {
      tick();
      CHECK(now_ < limit, "the program does not end");
    }
    CHECK(exit_ == 0, "the program stopped at %x: an exception if it is odd, else see finish() in engine.c", exit_);
  }

  void check() {
    const uint8_t* found = memory_.at(SOC_DESTINATION, options_.bytes);
    for (uint32_t i = 0; i < options_.bytes; i++) {
      CHECK(found[i] == expected_[i], "byte %u of the result is %02x and should be %02x", i, found[i], expected_[i]);
    }
    uint64_t sum = 0;
    for (int i = 0; i < SOC_ROWS; i++) sum += registers_[SOC_REG_ROWS + i];
    CHECK(sum == registers_[SOC_REG_TOTAL], "rows sum to %llu of %u cycles", static_cast<unsigned long long>(sum),
          registers_[SOC_REG_TOTAL]);
    const uint64_t cycles = stopped_ - started_;
    const uint64_t slack = kSlackReads * (options_.read_latency + options_.write_latency + 20);
    CHECK(cycles >= sum && cycles < sum + slack, "the CPU counted %llu of %llu cycles",
          static_cast<unsigned long long>(sum), static_cast<unsigned long long>(cycles));
  }

  void print() {
    std::printf("{\"mode\": \"%s\", \"decrypt\": %s, \"bytes\": %u, \"request\": %u, \"requests\": %u",
                kModes[options_.mode], options_.decrypt ? "true" : "false", options_.bytes, options_.request,
                registers_[SOC_REG_REQUESTS]);
    std::printf(", \"instructions\": %u, \"cycles\": %u", registers_[SOC_REG_INSTRUCTIONS], registers_[SOC_REG_TOTAL]);
    std::printf(", \"rows\": {");
    for (int i = 0; i < SOC_ROWS; i++) {
      std::printf("%s\"%s\": %u", i ? ", " : "", kRows[i], registers_[SOC_REG_ROWS + i]);
    }
    std::printf("}}\n");
  }

 private:
  void load() {
    std::ifstream file(options_.program, std::ios::binary);
    const std::vector<char> program((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    CHECK(!program.empty() && program.size() < SOC_JOB, "%s is no program", options_.program.c_str());
    std::copy(program.begin(), program.end(), memory_.at(0, program.size()));

    soc_job job = {options_.mode, options_.decrypt, options_.bytes, options_.request, KEY_BITS, 0,
                   options_.spin, {}};
    job.first_sector = static_cast<uint32_t>(random_.below(1u << 30));
    random_.fill(job.key, sizeof job.key);
    std::memcpy(memory_.at(SOC_JOB, sizeof job), &job, sizeof job);

    const model::Bytes key(job.key, job.key + KEY_BITS / 4);
    std::vector<uint8_t> plain(options_.bytes), cipher;
    random_.fill(plain.data(), plain.size());
    const model::Xts xts(key);
    for (uint32_t at = 0; at < options_.bytes; at += SOC_SECTOR_BYTES) {
      model::Bytes tweak(16);
      const uint64_t number = job.first_sector + at / SOC_SECTOR_BYTES;
      std::memcpy(tweak.data(), &number, sizeof number);
      model::Blocks sector(SOC_SECTOR_BYTES / 16);
      std::memcpy(sector.data(), &plain[at], SOC_SECTOR_BYTES);
      for (const model::Block& block : xts.crypt(false, tweak, sector)) cipher.insert(cipher.end(), block.begin(), block.end());
    }
    expected_ = options_.decrypt ? plain : cipher;
    // What has to be overwritten is neither.
    random_.fill(memory_.at(SOC_DESTINATION, options_.bytes), options_.bytes);
    const std::vector<uint8_t>& source = options_.decrypt ? cipher : plain;
    std::copy(source.begin(), source.end(),
              memory_.at(options_.decrypt ? SOC_DESTINATION : SOC_SOURCE, options_.bytes));
  }

  void tick() {
    memory_.drive(now_);
    top_->clk_i = 0;
    top_->eval();
    if (top_->rst_ni) memory_.observe(now_);
    if (top_->rst_ni && top_->bench_valid_o) take(top_->bench_index_o, top_->bench_data_o);
    top_->clk_i = 1;
    top_->eval();
    now_++;
  }

  void take(uint32_t index, uint32_t value) {
    CHECK(index < SOC_REGISTERS, "the program writes to register %u", index);
    registers_[index] = value;
    if (index == SOC_REG_EXIT) ended_ = true, exit_ = value;
    if (index == SOC_REG_START) started_ = now_;
    if (index == SOC_REG_STOP) stopped_ = now_;
  }

  const Options options_;
  Random random_;
  std::unique_ptr<Vsoc> top_;
  BusMemory<Vsoc, BUS_BYTES> memory_;
  std::vector<uint8_t> expected_;
  uint32_t registers_[SOC_REGISTERS] = {};
  uint64_t now_ = 0, started_ = 0, stopped_ = 0;
  bool ended_ = false;
  uint32_t exit_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  Computer computer(parse(argc, argv));
  computer.run();
  computer.check();
  computer.print();
  return 0;
}
