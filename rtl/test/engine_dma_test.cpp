// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The co-processor's DMA, source and destination with a cipher between them that inverts
// all bits, against memory that waits, refuses and answers late: random requests with lists
// cut anywhere, in place and not; every kind of fault, after which memory beyond the good
// units has to be as it was, or zero; soft resets at any time; and what it all costs in cycles.

#include <algorithm>
#include <map>

#include "Vengine_dma_tb.h"
#include "bus_memory.h"

namespace {

constexpr uint64_t kBase = 0x1234500000;
constexpr size_t kSize = 8 << 20;
constexpr int kDone = 0, kList = 6, kAlignment = 7, kRead = 10, kWrite = 11, kOther = 3;
using Memory = BusMemory<Vengine_dma_tb, BUS_BYTES>;
using Bytes = std::vector<uint8_t>;

// Where some of a run lies.
struct Piece {
  uint64_t address;
  uint32_t blocks;
};

enum Kind {
  kFine, kSourceRead, kListRead, kDestinationListRead, kSourceList, kDestinationList,
  kBadAddress, kRefused, kRefusedAlways, kEmpty, kKinds
};

struct Request {
  Kind kind = kFine;
  uint64_t cookie = 0;
  int number = 0;
  uint32_t unit = 1, blocks = 0;
  int status = kDone;
  bool empty = false;
  bool lists[2] = {false, false};
  uint64_t address[2] = {0, 0};
  uint32_t entries[2] = {0, 0};
  std::vector<Piece> pieces[2];
  // What the source has, and the destination had.
  Bytes data, before;
  // Expected: status, and the least and most good blocks.
  int expect = kDone;
  uint32_t least = 0, most = 0;
};

class Bench {
 public:
  explicit Bench(uint64_t seed) : random(seed), memory(top, random, kBase, kSize) {
    top.rst_ni = 0;
    idle_inputs();
    for (int i = 0; i < 3; i++) step();
    top.rst_ni = 1;
    do step(); while (top.busy_o);
    renew();
  }

  Vengine_dma_tb top;
  Random random;
  Memory memory;
  uint64_t now = 0, last_out = 0;
  std::deque<Request> under_way;
  std::deque<Request> waiting;
  int results = 0, erased = 0, failed_erasing = 0;
  // Other users of the bus.
  bool others = false;

  void idle_inputs() {
    top.clear_i = top.stop_i = top.request_valid_i = top.ring_valid_i = 0;
    top.post_valid_i = top.post_data_valid_i = 0;
    top.result_ready_i = 1;
  }

  // All memory anew; nothing is under way.
  void renew() {
    random.fill(memory.bytes.data(), memory.bytes.size());
    memory.read_faults.clear();
    memory.write_faults.clear();
    next_free_ = kBase + 8192;
    given_back_.clear();
  }

  uint64_t space() const { return kBase + kSize - next_free_; }

  uint64_t allocate(uint64_t len, uint64_t alignment) {
    next_free_ = (next_free_ + alignment - 1) / alignment * alignment;
    const uint64_t address = next_free_;
    next_free_ += len;
    CHECK(next_free_ <= kBase + kSize, "the test's memory is full");
    return address;
  }

  // `cut`: entries of so many blocks, 0: at random; without list one piece.
  void place(Request& request, int end, bool list, uint32_t cut, uint64_t alignment) {
    request.lists[end] = list;
    auto& pieces = request.pieces[end];
    uint32_t left = request.blocks;
    const uint32_t most = 1u << random.below(9);
    while (left) {
      uint32_t blocks = left;
      if (list) blocks = std::min<uint32_t>(left, cut ? cut : 1 + random.below(most));
      if (list && !cut && random.below(16) == 0) next_free_ += 16 * random.below(300);
      const bool aligned = !list || cut || random.below(8) == 0;
      pieces.push_back({allocate(16 * blocks, aligned ? alignment : 16), blocks});
      left -= blocks;
    }
    if (list && !cut && pieces.size() > 1 && random.below(2)) std::reverse(pieces.begin(), pieces.end());
    request.address[end] = pieces[0].address;
    if (list) write_list(request, end);
  }

  void write_list(Request& request, int end) {
    const auto& pieces = request.pieces[end];
    // One more fits, for a list that is too long.
    request.address[end] = allocate(16 * (pieces.size() + 1), 16);
    request.entries[end] = static_cast<uint32_t>(pieces.size());
    for (size_t i = 0; i < pieces.size(); i++) {
      uint8_t* entry = memory.at(request.address[end] + 16 * i, 16);
      const uint32_t words[4] = {static_cast<uint32_t>(pieces[i].address),
                                 static_cast<uint32_t>(pieces[i].address >> 32),
                                 16 * pieces[i].blocks, 0};
      std::memcpy(entry, words, 16);
    }
  }

  Bytes gather(const std::vector<Piece>& pieces) {
    Bytes bytes;
    for (const Piece& piece : pieces) {
      const uint8_t* from = memory.at(piece.address, 16 * piece.blocks);
      bytes.insert(bytes.end(), from, from + 16 * piece.blocks);
    }
    return bytes;
  }

  void submit(Request request) {
    request.data = gather(request.pieces[0]);
    request.before = gather(request.pieces[1]);
    waiting.push_back(std::move(request));
  }

  // A cycle.
  void step() {
    top.request_valid_i = !waiting.empty();
    if (!waiting.empty()) {
      Request& request = waiting.front();
      top.number_i = static_cast<uint8_t>(request.number);
      top.cookie_i = request.cookie;
      top.empty_i = request.empty;
      top.status_i = static_cast<uint8_t>(request.status);
      top.unit_blocks_i = static_cast<uint16_t>(request.unit);
      top.blocks_i = request.blocks;
      top.source_list_i = request.lists[0];
      top.source_i = request.address[0];
      top.source_entries_i = request.entries[0];
      top.destination_list_i = request.lists[1];
      top.destination_i = request.address[1];
      top.destination_entries_i = request.entries[1];
    }
    other_users();
    memory.drive(now);
    top.clk_i = 0;
    top.eval();
    if (top.rst_ni) {
      memory.observe(now);
      observe_others();
      if (top.out_taken_o) last_out = now;
      if (top.arvalid_o) {
        const auto after = given_back_.upper_bound(top.araddr_o);
        CHECK(after == given_back_.begin() || std::prev(after)->second <= top.araddr_o,
              "%llx is read after the result of its request", static_cast<unsigned long long>(top.araddr_o));
      }
      if (top.request_valid_i && top.request_ready_o) {
        under_way.push_back(std::move(waiting.front()));
        waiting.pop_front();
      }
      if (top.result_valid_o && top.result_ready_i) check_result();
    }
    top.clk_i = 1;
    top.eval();
    if (ring_taken_) top.ring_valid_i = 0;
    if (posted_) top.post_valid_i = 0;
    now++;
  }

  void run() {
    const uint64_t limit = now + 3000000;
    while (!waiting.empty() || !under_way.empty()) {
      CHECK(now < limit, "nothing comes of request %llu of kind %d",
            static_cast<unsigned long long>(under_way.empty() ? 0 : under_way.front().cookie),
            under_way.empty() ? -1 : under_way.front().kind);
      top.result_ready_i = !others || random.below(4) != 0;
      step();
    }
  }

  void settle() {
    others = false;
    for (int i = 0; i < 3000 && (!top.idle_o || !memory.idle() || post_state_ || ring_left_); i++) step();
    CHECK(top.idle_o && memory.idle() && !post_state_ && !ring_left_, "the bus does not become idle");
  }

  // What was under way is gone; the bus sees the rest of it.
  void soft_reset() {
    top.clear_i = 1;
    waiting.clear();
    const uint64_t strobed_before = memory.strobed;
    step();
    top.clear_i = 0;
    top.stop_i = 1;
    under_way.clear();
    top.post_valid_i = top.post_data_valid_i = top.ring_valid_i = 0;
    ring_left_ = post_state_ = 0;
    const bool was = others;
    others = false;
    int cycles = 0;
    do {
      step();
      CHECK(!top.result_valid_o && !top.ring_rsp_valid_o && !top.post_done_o, "something is told while it is stopped");
      CHECK(++cycles < 20000, "it is not idle after a soft reset");
    } while (!top.idle_o);
    // The beat of the cycle before, and the one that was being offered.
    CHECK(memory.strobed <= strobed_before + 2, "data is written after a soft reset");
    CHECK(memory.idle() || !top.rvalid_i, "a read is left");
    top.stop_i = 0;
    do step(); while (top.busy_o);
    others = was;
  }

 private:
  void check_result() {
    CHECK(!under_way.empty(), "a result of nothing");
    const Request request = std::move(under_way.front());
    under_way.pop_front();
    const uint32_t good = top.result_blocks_o;
    CHECK(top.result_cookie_o == request.cookie, "results are out of order");
    CHECK(top.result_status_o == request.expect && good >= request.least && good <= request.most,
          "kind %d: status %d, expected %d; %u blocks, expected %u to %u of %u", request.kind, top.result_status_o,
          request.expect, good, request.least, request.most, request.blocks);
    CHECK(good % request.unit == 0, "%u blocks are no whole units of %u", good, request.unit);
    CHECK(1u << top.result_log2_unit_o == request.unit, "units of 2^%d", top.result_log2_unit_o);
    const Bytes after = gather(request.pieces[1]);
    bool left = false, zeros = false;
    for (size_t i = 0; i < after.size() && !request.empty; i += 16) {
      const uint8_t *is = &after[i], *was = &request.before[i];
      if (i / 16 < good) {
        for (int j = 0; j < 16; j++) {
          CHECK(is[j] == static_cast<uint8_t>(~request.data[i + j]), "kind %d: block %zu of %u is wrong",
                request.kind, i / 16, request.blocks);
        }
      } else if (std::memcmp(is, was, 16) != 0) {
        const bool zero = std::all_of(is, is + 16, [](uint8_t byte) { return byte == 0; });
        CHECK(zero || top.result_not_erased_o, "kind %d: block %zu is left, beyond %u of %u", request.kind, i / 16,
              good, request.blocks);
        (zero ? zeros : left) = true;
      }
    }
    CHECK(top.result_not_erased_o == (request.kind == kRefusedAlways), "kind %d: erased or not", request.kind);
    erased += zeros;
    failed_erasing += top.result_not_erased_o;
    results++;
    for (int end = 0; end < 2; end++) {
      if (request.lists[end] && request.kind != kBadAddress) {
        given_back_[request.address[end]] = request.address[end] + 16 * request.pieces[end].size();
      }
    }
    for (const Piece& piece : request.pieces[0]) given_back_[piece.address] = piece.address + 16 * uint64_t{piece.blocks};
  }

  // What is software's again, from where to where: data and lists of requests that have ended.
  std::map<uint64_t, uint64_t> given_back_;

  // Reads and writes as rings and completions have them.
  void other_users() {
    if (others && !ring_left_ && random.below(8) == 0) {
      ring_left_ = 1 + static_cast<int>(random.below(4));
      ring_address_ = kBase + 16 * random.below(252);
      top.ring_valid_i = 1;
      top.ring_address_i = ring_address_;
      top.ring_blocks_i = static_cast<uint8_t>(ring_left_);
    }
    if (others && !post_state_ && random.below(16) == 0) {
      post_state_ = 1;
      post_block_ = random.block();
      post_address_ = kBase + 4096 + 16 * random.below(256);
      top.post_valid_i = 1;
      top.post_address_i = post_address_;
    }
    top.post_data_valid_i = post_state_ == 2;
    put(top.post_block_i, post_block_);
  }

  void observe_others() {
    ring_taken_ = top.ring_valid_i && top.ring_ready_o;
    posted_ = top.post_valid_i && top.post_ready_o;
    if (top.ring_rsp_valid_o) {
      CHECK(ring_left_ > 0 && !top.ring_rsp_error_o, "an answer that was not asked for");
      CHECK(std::memcmp(get(top.ring_rsp_block_o).data(), memory.at(ring_address_, 16), 16) == 0, "wrong data");
      CHECK(top.ring_rsp_last_o == (ring_left_ == 1), "the last block");
      ring_address_ += 16;
      ring_left_--;
    }
    if (post_state_ == 3 && top.post_done_o) {
      CHECK(!top.post_error_o, "an error of somebody else");
      CHECK(std::memcmp(post_block_.data(), memory.at(post_address_, 16), 16) == 0, "not written");
      post_state_ = 0;
    } else {
      CHECK(!top.post_done_o, "an answer to nothing");
    }
    if (post_state_ == 2 && top.post_data_ready_o) post_state_ = 3;
    if (posted_) post_state_ = 2;
  }

  uint64_t next_free_ = kBase;
  int ring_left_ = 0, post_state_ = 0;
  uint64_t ring_address_ = 0, post_address_ = 0;
  model::Block post_block_{};
  // Taken at the coming edge.
  bool ring_taken_ = false, posted_ = false;
};


// A request of `kind`, placed in memory, with what is to come of it.
Request draw(Bench& bench, Kind kind) {
  Random& random = bench.random;
  Request request;
  request.kind = kind;
  if (kind == kEmpty) {
    request.empty = true;
    request.status = request.expect = random.below(2) ? kDone : kOther;
    return request;
  }
  const uint32_t units[] = {1, 32, 64, 128, 256};
  request.unit = units[random.below(5)];
  const uint32_t most = random.below(4) ? 300 : 1200;
  request.blocks = request.unit * (1 + random.below(std::max(1u, most / request.unit)));
  request.most = request.least = request.blocks;

  const bool source_list = kind == kListRead || kind == kSourceList || random.below(2);
  const bool apart = kind == kDestinationListRead || kind == kDestinationList || random.below(2);
  const uint64_t alignment = random.below(3) ? 16 : 4096;
  bench.place(request, 0, source_list, 0, alignment);
  if (apart) {
    const bool list = kind == kDestinationListRead || kind == kDestinationList || random.below(2);
    bench.place(request, 1, list, 0, alignment);
  } else {
    request.lists[1] = request.lists[0];
    request.address[1] = request.address[0];
    request.entries[1] = request.entries[0];
    request.pieces[1] = request.pieces[0];
  }

  // The first block that is wrong, at least and at most.
  const auto ends_at = [&](int status, uint32_t least, uint32_t most) {
    request.expect = status;
    request.least = least / request.unit * request.unit;
    request.most = most / request.unit * request.unit;
  };
  const auto address_of = [&](int end, uint32_t block) {
    for (const Piece& piece : request.pieces[end]) {
      if (block < piece.blocks) return piece.address + 16 * block;
      block -= piece.blocks;
    }
    CHECK(false, "no such block");
    return uint64_t{0};
  };
  const int end = kind == kDestinationListRead || kind == kDestinationList;
  const uint32_t victim = static_cast<uint32_t>(random.below(request.blocks));
  const uint32_t entry = static_cast<uint32_t>(random.below(request.pieces[end].size()));
  uint32_t before = 0;
  for (uint32_t i = 0; i < entry; i++) before += request.pieces[end][i].blocks;

  switch (kind) {
    case kSourceRead:
      bench.memory.read_faults.push_back({address_of(0, victim), -1});
      ends_at(kRead, victim, victim);
      break;
    case kListRead:
    case kDestinationListRead:
      bench.memory.read_faults.push_back({request.address[end] + 16 * entry, -1});
      ends_at(kRead, before, before);
      break;
    case kSourceList:
    case kDestinationList: {
      uint8_t* bytes = bench.memory.at(request.address[end] + 16 * entry, 16);
      const auto change_length = [&](uint32_t length) { std::memcpy(bytes + 8, &length, 4); };
      ends_at(kList, before, before);
      switch (random.below(10)) {
        case 0: bytes[0] |= 1 + random.below(15); break;
        case 1: change_length(0); break;
        case 2: bytes[8] |= 1 + random.below(15); break;
        case 3: bytes[12 + random.below(4)] = 1 + random.below(255); break;
        case 4: bytes[5 + random.below(3)] = 1 + random.below(255); break;
        case 5: {
          // The last byte of it is one beyond.
          const uint64_t address = (1ULL << 40) - 16 * request.pieces[end][entry].blocks + 16;
          std::memcpy(bytes, &address, 8);
          break;
        }
        case 6: request.entries[end] = entry; break;
        case 7:
          request.entries[end]++;
          ends_at(kList, request.blocks - std::min(request.blocks, 64u), request.blocks - 1);
          break;
        case 8: {
          uint8_t* last = bench.memory.at(request.address[end] + 16 * (request.pieces[end].size() - 1), 16);
          const uint32_t length = 16 * request.pieces[end].back().blocks + 16;
          std::memcpy(last + 8, &length, 4);
          ends_at(kList, request.blocks - std::min(request.blocks, 64u), request.blocks - 1);
          break;
        }
        default:
          request.entries[end] = random.below(2) ? 0 : (1 << 20) + 1;
          ends_at(kList, 0, 0);
      }
      if (!apart) request.entries[1] = request.entries[0];
      break;
    }
    case kBadAddress: {
      const int bad = static_cast<int>(random.below(2));
      const uint64_t size = request.lists[bad] ? request.entries[bad] : request.blocks;
      const uint64_t addresses[] = {request.address[bad] + 1 + random.below(15), (1ULL << 40) - 16 * size + 16,
                                    request.address[bad] | 1ULL << (40 + random.below(24)), ~0ULL << 4};
      request.address[bad] = addresses[random.below(4)];
      ends_at(kAlignment, 0, 0);
      break;
    }
    case kRefused:
    case kRefusedAlways:
      bench.memory.write_faults.push_back({address_of(1, victim), kind == kRefused ? 1 : -1});
      ends_at(kWrite, victim - std::min(victim, 15u), victim);
      break;
    default: break;
  }
  return request;
}

BusTiming draw_timing(Random& random) {
  BusTiming timing;
  if (random.below(4) == 0) return timing;
  timing.latency = random.below(2) ? 0 : static_cast<int>(random.below(100));
  timing.jitter = random.below(2) ? 0 : static_cast<int>(random.below(60));
  int* channels[] = {&timing.ar, &timing.r, &timing.aw, &timing.w, &timing.b};
  for (int* channel : channels) *channel = random.below(2) ? 0 : static_cast<int>(random.below(15));
  return timing;
}

void random_requests(uint64_t seed, int rounds) {
  Bench bench(seed);
  int kinds[kKinds] = {};
  uint64_t cookie = seed << 32;
  int number = 0, resets = 0;
  for (int round = 0; round < rounds; round++) {
    bench.memory.timing = draw_timing(bench.random);
    bench.memory.half_written = bench.random.below(2);
    bench.others = bench.random.below(2);
    const int count = 1 + static_cast<int>(bench.random.below(8));
    for (int i = 0; i < count && bench.space() > kSize / 4; i++) {
      Request request = draw(bench, bench.random.below(2) ? kFine : static_cast<Kind>(bench.random.below(kKinds)));
      request.cookie = cookie++;
      request.number = number++ % 16;
      kinds[request.kind]++;
      bench.submit(std::move(request));
    }
    if (bench.random.below(8) == 0) {
      for (int i = static_cast<int>(bench.random.below(2000)); i > 0 && !bench.under_way.empty() + bench.waiting.size(); i--) bench.step();
      bench.soft_reset();
      resets++;
    } else {
      bench.run();
    }
    if (bench.space() < kSize / 2) {
      bench.settle();
      bench.renew();
    }
  }
  bench.settle();
  for (int kind = 0; kind < kKinds; kind++) CHECK(kinds[kind] > 0 || rounds < 100, "no request of kind %d", kind);
  CHECK(rounds < 100 || (bench.erased && bench.failed_erasing && resets && bench.memory.faults),
        "nothing was erased, or reset");
  std::printf("engine-dma: bus of %d bytes, seed %llu: %d results, %d with erasing, %d soft resets\n", BUS_BYTES,
              static_cast<unsigned long long>(seed), bench.results, bench.erased, resets);
}

// Cycles a block of `count` requests of `blocks` in a row, less than `most`.
void throughput(const char* what, int latency, int count, uint32_t blocks, uint32_t unit, uint32_t cut, double most) {
  Bench bench(1);
  bench.memory.timing.latency = latency;
  for (int i = 0; i < count; i++) {
    Request request;
    request.unit = unit;
    request.blocks = request.least = request.most = blocks;
    request.number = i % 16;
    for (int end = 0; end < 2; end++) bench.place(request, end, cut != 0, cut, 512);
    bench.submit(std::move(request));
  }
  const uint64_t begin = bench.now;
  bench.run();
  const double each = static_cast<double>(bench.now - begin) / (static_cast<double>(count) * blocks);
  std::printf("engine-dma: bus of %2d bytes, latency %3d, %-40s %6.3f cycles a block\n", BUS_BYTES, latency, what, each);
  CHECK(each <= most * 16 / BUS_BYTES, "%s: %.3f cycles a block, expected %.3f", what, each, most * 16 / BUS_BYTES);
}

// Of one request of 4 KiB: from request to the first address, and from the last block out
// of the cipher to the last beat.
void latency(int round_trip) {
  Bench bench(2);
  bench.memory.timing.latency = round_trip;
  Request request;
  request.unit = request.blocks = request.least = request.most = 256;
  for (int end = 0; end < 2; end++) bench.place(request, end, false, 0, 4096);
  bench.submit(std::move(request));
  const uint64_t begin = bench.now;
  bench.run();
  const int head = static_cast<int>(bench.memory.first_read - begin);
  const int tail = static_cast<int>(bench.memory.last_write - bench.last_out);
  const int whole = static_cast<int>(bench.now - begin) - 2 * round_trip;
  std::printf("engine-dma: bus of %2d bytes, latency %3d: 4096 bytes in %d cycles and two round trips; "
              "first address after %d, last beat %d after the last block\n",
              BUS_BYTES, round_trip, whole, head, tail);
  CHECK(head <= 5 && tail <= 20 * 16 / BUS_BYTES && whole <= 280 * 16 / BUS_BYTES + 20, "it takes too long");
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 200;
  for (uint64_t seed = 1; seed <= 4; seed++) {
    std::fprintf(stderr, "engine-dma: seed %llu\n", static_cast<unsigned long long>(seed));
    random_requests(seed, rounds);
  }
  for (int round_trip : {0, 30, 100}) latency(round_trip);
  for (int round_trip : {0, 100}) {
    throughput("one of 512 KiB", round_trip, 1, 32768, 256, 0, 1.02);
    throughput("one of 512 KiB, lists of 4 KiB", round_trip, 1, 32768, 256, 256, 1.02);
    throughput("one of 512 KiB, lists of 512 bytes", round_trip, 1, 32768, 256, 32, 1.08);
    throughput("128 of 4 KiB", round_trip, 128, 256, 256, 0, 1.03);
    throughput("128 of 4 KiB, each with lists", round_trip, 128, 256, 256, 256, 1.06);
    throughput("512 of 512 bytes", round_trip, 512, 32, 32, 0, 1.2);
  }
}
