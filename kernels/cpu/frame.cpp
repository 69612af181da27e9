// A frame, stage after stage: every thread takes a part of a stage, and the next one begins when all have finished.
#include "frame.hpp"
#include "mosaic.hpp"
#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <thread>
#include <vector>

namespace {

// Calls `work` on several threads, which exist only meanwhile: a process that forks has none, and an idle pipeline
// none. Each gets a count of its own; returns the sums. With fewer threads than wanted, which a system can limit, the
// others do all the work.
template <class Work> Count on_threads(int threads, const Work &work) {
  std::vector<Count> counts(threads, Count());
  std::vector<char> failed(threads, false);
  const auto safely = [&](int k) {
    try {
      work(counts[k]);
    } catch (const std::bad_alloc &) {
      failed[k] = true;
    }
  };
  std::vector<std::thread> others;
  others.reserve(threads);
  try {
    for (int k = 1; k < threads; k++) others.emplace_back(safely, k);
  } catch (const std::exception &) { // no memory for a thread, or too many of them
  }
  safely(0);
  for (std::thread &other : others) other.join();
  Count all = Count();
  for (int k = 0; k < threads; k++) {
    if (failed[k]) throw std::bad_alloc();
    all.saturated += counts[k].saturated;
    all.dark += counts[k].dark;
  }
  return all;
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Raw pixels that are worth a thread.
const int64_t LEAST_PIXELS = 1 << 13;

void compute(Frame &of, int most_threads) {
  Mosaic &mosaic = of.mosaic;
  const int threads = (int)std::min<int64_t>(most_threads, 1 + (int64_t)mosaic.height * mosaic.width / LEAST_PIXELS);
  const bool is_by_superpixel = mosaic.half && mosaic.method <= BILINEAR;
  if (of.color.corrected) {
    on_threads(threads, [&](Count &) { correct_frame(mosaic, of.color.corrected); });
    mosaic.next = 0;
  }
  of.invalid = on_threads(threads, [&](Count &count) {
    if (mosaic.is_color)
      colors(mosaic, of.color, of.products, count);
    else
      (is_by_superpixel ? superpixels : demosaiced)(mosaic, of.products, count);
  });
  const double first = now();
  if (of.has_geometry) {
    if (of.invalid.saturated + of.invalid.dark) {
      of.transform.flags = of.products.flags;
      on_threads(threads, [&](Count &) { find_invalid_rows(of.transform); });
      of.transform.next = 0;
    }
    of.invalid = on_threads(threads, [&](Count &count) { transformed(of.transform, of.transformed, count); });
  }
  const double second = now();
  if (of.is_compared) on_threads(threads, [&](Count &) { similarity(of.similarity); });
  of.seconds[0] = second - first;
  of.seconds[1] = now() - second;
}

} // namespace

extern "C" {
// Bytes of a frame's structure, for callers to compare with theirs.
__attribute__((visibility("default"))) int64_t frame_bytes() { return sizeof(Frame); }

// Computes a frame with up to `threads` threads; returns 0, or 1 where memory does not suffice. The results have the
// same bits for any number of threads.
__attribute__((visibility("default"))) int32_t compute_frame(Frame *of, int32_t threads) {
  try {
    compute(*of, threads);
  } catch (const std::bad_alloc &) {
    return 1;
  }
  return 0;
}
}
