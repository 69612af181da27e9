// A frame, stage after stage: every thread takes a part of a stage, and the next one begins when all have finished.
#include "frame.hpp"
#include "mosaic.hpp"
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <new>
#include <pthread.h>
#include <sched.h>
#include <vector>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

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

// A thread that helps with `work`. If all is done before it begins, on a processor that others use, nothing waits for
// it: whoever comes second, the thread or its caller, frees this.
template <class Work> struct Helper {
  const Work &work;
  pthread_t thread;
  Count count;
  bool failed;
  std::atomic<bool> is_claimed; // by the thread, to work, or by its caller, to go on without

  static void *run(void *helper) {
    Helper *of = (Helper *)helper;
    if (of->is_claimed.exchange(true))
      delete of;
    else
      of->failed = !safely(of->work, of->count);
    return nullptr;
  }

  // Does a part of `work`; returns whether memory sufficed.
  static bool safely(const Work &work, Count &count) {
    try {
      work(count);
    } catch (const std::bad_alloc &) {
      return false;
    }
    return true;
  }
};

// Calls `work` on several threads, which end with it, or at once if they begin later: a process that forks has none,
// and an idle pipeline none. Each gets a count of its own; returns the sums. With fewer threads than wanted, which a
// system can limit, the others do all the work.
template <class Work> Count on_threads(int threads, const Work &work) {
  std::vector<Helper<Work> *> helpers;
  helpers.reserve(threads);
  const Elsewhere elsewhere;
  while ((int)helpers.size() < threads - 1) {
    auto *helper = new (std::nothrow) Helper<Work>{work, {}, Count(), false, {false}};
    const auto start = [&](const pthread_attr_t *attributes) {
      return !pthread_create(&helper->thread, attributes, Helper<Work>::run, helper);
    };
    if (!helper || !(start(&elsewhere.attributes) || start(nullptr))) { // a sandbox may refuse attributes
      delete helper;
      break;
    }
    helpers.push_back(helper);
  }
  Count all = Count();
  bool failed = !Helper<Work>::safely(work, all);
  for (Helper<Work> *helper : helpers) {
    const pthread_t thread = helper->thread;
    if (!helper->is_claimed.exchange(true)) {
      pthread_detach(thread);
      continue;
    }
    pthread_join(thread, nullptr);
    failed |= helper->failed;
    all.saturated += helper->count.saturated;
    all.dark += helper->count.dark;
    delete helper;
  }
  if (failed) throw std::bad_alloc();
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

// Copies bytes past the caches where the processor can: a device fetches them at half the speed while they are there.
void copy_past_caches(char *to, const char *from, int64_t bytes) {
#ifdef __SSE2__
  const int64_t head = std::min<int64_t>(bytes, -(uintptr_t)to & 15), whole = (bytes - head) & ~int64_t(15);
  std::memcpy(to, from, head);
  for (int64_t k = head; k < head + whole; k += 16)
    _mm_stream_si128((__m128i *)(to + k), _mm_loadu_si128((const __m128i *)(from + k)));
  std::memcpy(to + head + whole, from + head + whole, bytes - head - whole);
  _mm_sfence(); // the order of these stores is their own
#else
  std::memcpy(to, from, bytes);
#endif
}

// Bytes that a thread copies at a time, and that are worth a thread.
const int64_t PART = 1 << 16, LEAST_BYTES = 1 << 18;

} // namespace

extern "C" {
// Bytes of a frame's structure, for callers to compare with theirs.
__attribute__((visibility("default"))) int64_t frame_bytes() { return sizeof(Frame); }

// Copies `rows` rows of `row_bytes` bytes, which begin `step` bytes apart, to where no gaps are, with up to `threads`
// threads.
__attribute__((visibility("default"))) void copy_rows(char *to, const char *from, int64_t rows, int64_t row_bytes,
                                                      int64_t step, int32_t threads) {
  if (step == row_bytes) row_bytes *= rows, rows = 1;
  const int64_t of_row = (row_bytes + PART - 1) / PART;
  std::atomic<int64_t> next{0};
  const auto work = [&](Count &) {
    for (int64_t part; (part = next++) < rows * of_row;) {
      const int64_t row = part / of_row, first = part % of_row * PART;
      const int64_t bytes = std::min(PART, row_bytes - first);
      copy_past_caches(to + row * row_bytes + first, from + row * step + first, bytes);
    }
  };
  try {
    on_threads((int)std::min<int64_t>(threads, 1 + rows * row_bytes / LEAST_BYTES), work);
  } catch (const std::bad_alloc &) { // before any part was begun
    Count count;
    work(count);
  }
}

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
