// A frame, stage after stage: every thread takes a part of a stage, and the next one begins when all have finished.
#include "frame.hpp"
#include "mosaic.hpp"
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <mutex>
#include <new>
#include <pthread.h>
#include <sched.h>
#include <thread>
#include <unistd.h>
#include <vector>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace {

// Work that threads share: each calls `run` once, with a count of its own.
struct Job {
  void (*run)(const void *work, Count &count);
  const void *work;
  int wanted; // helpers that may still come
  int busy;   // helpers that are at work
  bool failed;
  Count count;

  // Does a part of the work.
  void help(Count &own, bool &has_failed) const {
    try {
      run(work, own);
    } catch (const std::bad_alloc &) {
      has_failed = true;
    }
  }
};

// Threads that help callers. They sleep in between and end with the process, since making them for each frame took as
// long as a third of a copy. A process that was forked has none, and makes its own.
class Helpers {
public:
  static Helpers &get() {
    static std::atomic<Helpers *> current{nullptr};
    Helpers *known = current;
    while (!known || known->process != getpid()) {
      Helpers *made = new Helpers; // never deleted: its threads use it until the process ends
      if (current.compare_exchange_strong(known, made)) return *made;
      delete made;
    }
    return *known;
  }

  // Runs a job on the caller's thread, and on those helpers that begin before the caller has finished.
  void share(Job &job) {
    const int helpers = job.wanted; // a copy: helpers that begin decrement it
    {
      std::lock_guard<std::mutex> lock(mutex);
      const size_t before = threads.size();
      while ((int)threads.size() < helpers && start()) {
      }
      place_elsewhere(threads.size() > before);
      jobs.push_back(&job);
    }
    for (int k = 0; k < helpers; k++) begun.notify_one();
    Count own = Count();
    bool has_failed = false;
    job.help(own, has_failed);
    std::unique_lock<std::mutex> lock(mutex);
    const auto place = std::find(jobs.begin(), jobs.end(), &job);
    if (place != jobs.end()) jobs.erase(place);
    ended.wait(lock, [&] { return !job.busy; });
    add(job, own, has_failed);
  }

private:
  static void add(Job &job, const Count &own, bool has_failed) {
    job.count.saturated += own.saturated;
    job.count.dark += own.dark;
    job.failed |= has_failed;
  }

  // Starts a thread, on which no signal is handled; returns whether the system permits it.
  bool start() {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool is_started = true;
    try {
      threads.reserve(threads.size() + 1);
      std::thread thread([this] { work(); });
      threads.push_back(thread.native_handle());
      thread.detach();
    } catch (const std::exception &) { // no more threads, or no memory
      is_started = false;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return is_started;
  }

  // Has the threads run on any processor but the caller's. In a virtual machine, Linux often wakes a thread on the
  // processor of the one that wakes it though another one is idle; there it would wait until the caller has done all.
  void place_elsewhere(bool has_new) {
    cpu_set_t allowed;
    const int here = sched_getcpu();
    if (here < 0 || here >= CPU_SETSIZE || sched_getaffinity(0, sizeof allowed, &allowed)) return;
    CPU_CLR(here, &allowed);
    if (!CPU_COUNT(&allowed)) CPU_SET(here, &allowed);
    if (!has_new && CPU_EQUAL(&allowed, &places)) return;
    places = allowed;
    for (const pthread_t thread : threads)
      pthread_setaffinity_np(thread, sizeof places, &places); // a sandbox may refuse
  }

  void work() {
    std::unique_lock<std::mutex> lock(mutex);
    while (true) {
      begun.wait(lock, [&] { return !jobs.empty(); });
      Job &job = *jobs.front();
      if (!--job.wanted) jobs.erase(jobs.begin());
      job.busy++;
      lock.unlock();
      Count own = Count();
      bool has_failed = false;
      job.help(own, has_failed);
      lock.lock();
      add(job, own, has_failed);
      if (!--job.busy) ended.notify_all();
    }
  }

  const pid_t process = getpid();
  std::mutex mutex;
  std::condition_variable begun, ended;
  std::vector<Job *> jobs; // that want helpers
  std::vector<pthread_t> threads;
  cpu_set_t places = {}; // processors that they may use
};

// Calls `work` on several threads, each with a count of its own; returns the sums. With fewer threads than wanted,
// which a system can limit, the others do all the work.
template <class Work> Count on_threads(int threads, const Work &work) {
  const auto run = [](const void *of, Count &count) { (*(const Work *)of)(count); };
  Job job = {run, &work, threads - 1, 0, false, Count()};
  if (threads > 1)
    Helpers::get().share(job);
  else
    job.help(job.count, job.failed);
  if (job.failed) throw std::bad_alloc();
  return job.count;
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
  const uint8_t *flags = of.invalid.saturated + of.invalid.dark ? of.products.flags : nullptr;
  if (of.is_denoised) {
    of.denoising.products = &of.of_planes;
    of.denoising.flags = flags;
    on_threads(threads, [&](Count &) { denoised(of.denoising); });
    for (int stage = 0; of.is_learned && stage <= LEARNED_LAYERS; stage++) {
      of.learned.next = 0;
      on_threads(threads, [&](Count &) { learned(of.learned, of.denoising, stage); });
    }
    if (of.denoising.denoised && !of.has_geometry) {
      of.denoising.next = 0;
      on_threads(threads, [&](Count &) { products_of_denoised(of.denoising); });
    }
  }
  const double second = now();
  if (of.has_geometry) {
    if (flags) {
      of.transform.flags = flags;
      on_threads(threads, [&](Count &) { find_invalid_rows(of.transform); });
      of.transform.next = 0;
    }
    if (of.compared.first) {
      on_threads(threads, [&](Count &count) { transformed(of.transform, of.compared, count); });
      of.transform.next = 0;
    }
    if (of.is_denoised) of.transform.linear = of.denoising.denoised;
    of.invalid = on_threads(threads, [&](Count &count) { transformed(of.transform, of.of_planes, count); });
  }
  const double third = now();
  if (of.is_compared) on_threads(threads, [&](Count &) { similarity(of.similarity); });
  of.seconds[0] = second - first;
  of.seconds[1] = third - second;
  of.seconds[2] = now() - third;
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
// Bytes of the structures of both arguments, for callers to compare with theirs.
__attribute__((visibility("default"))) int64_t frame_bytes() { return sizeof(Frame) + sizeof(Bracket); }

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

// Merges exposures with up to `threads` threads; returns 0, or 1 where memory does not suffice.
__attribute__((visibility("default"))) int32_t merge_exposures(Bracket *of, int32_t threads) {
  try {
    for (int stage = 0; stage < MERGE_STAGES; stage++) {
      of->next = 0;
      on_threads(threads, [&](Count &) { merge_rows(*of, stage); });
    }
  } catch (const std::bad_alloc &) {
    return 1;
  }
  return 0;
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
