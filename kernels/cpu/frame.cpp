// A frame, stage after stage: every thread takes a part of a stage, and the next one begins when all have finished.
#include "frame.hpp"
#include "mosaic.hpp"
#include <algorithm>
#include <chrono>
#include <new>
#include <pthread.h>
#include <sched.h>
#include <vector>

namespace {

// Attributes of a thread that runs on any processor but the caller's. In a virtual machine, Linux often starts a thread
// on its creator's processor though another one is idle; there it would wait until its creator has done all the work.
class Elsewhere {
public:
  Elsewhere() {
    pthread_attr_init(&attributes);
    cpu_set_t processors;
    const int here = sched_getcpu();
    if (here < 0 || here >= CPU_SETSIZE || sched_getaffinity(0, sizeof processors, &processors)) return;
    CPU_CLR(here, &processors);
    if (CPU_COUNT(&processors)) pthread_attr_setaffinity_np(&attributes, sizeof processors, &processors);
  }
  ~Elsewhere() { pthread_attr_destroy(&attributes); }
  pthread_attr_t attributes;
};

// The part of `work` that a thread does.
template <class Work> struct Share {
  const Work *work;
  Count count;
  bool failed;

  static void *run(void *share) {
    Share &of = *(Share *)share;
    try {
      (*of.work)(of.count);
    } catch (const std::bad_alloc &) {
      of.failed = true;
    }
    return nullptr;
  }
};

// Calls `work` on several threads, which exist only meanwhile: a process that forks has none, and an idle pipeline
// none. Each gets a count of its own; returns the sums. With fewer threads than wanted, which a system can limit, the
// others do all the work.
template <class Work> Count on_threads(int threads, const Work &work) {
  std::vector<Share<Work>> shares(threads, {&work, Count(), false});
  std::vector<pthread_t> others(threads - 1);
  const Elsewhere elsewhere;
  int n = 0;
  const auto start = [&](const pthread_attr_t *attributes) {
    return !pthread_create(&others[n], attributes, Share<Work>::run, &shares[n + 1]);
  };
  while (n < threads - 1 && (start(&elsewhere.attributes) || start(nullptr))) n++; // a sandbox may refuse attributes
  Share<Work>::run(&shares[0]);
  for (int k = 0; k < n; k++) pthread_join(others[k], nullptr);
  Count all = Count();
  for (const Share<Work> &share : shares) {
    if (share.failed) throw std::bad_alloc();
    all.saturated += share.count.saturated;
    all.dark += share.count.dark;
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
