// Runs a kernel's blocks one after another on the CPU, every CUDA thread a fiber that yields at barriers (`fibers.h`),
// and checks its accesses to memory.
//
// This is a library of its own, which those of the kernels need. They are compiled with -fsanitize=thread,alignment,...
// but linked without the sanitizers' libraries: their hooks are the functions at the end of this file. So every access
// of a kernel, however it is written, is checked (`memory_checks.h`):
// - it must lie in a registered buffer, in shared memory or in the thread's own stack, and be aligned;
// - two threads may touch the same byte of shared memory, one of them writing, only with a barrier in between.
// A fault ends the launch with a message; nothing aborts.
#include "fibers.h"
#include "memory_checks.h"

namespace {

// ------------------------------------------------------------------------------------------------------------ barriers

// Whether all threads of [first, last) that have not ended wait at `place`, and at least one does.
bool arrived(int first, int last, State place) {
  bool any = false;
  for (int t = first; t < last; ++t) {
    if (launch.fibers[t].state != place && launch.fibers[t].state != DONE) return false;
    any |= launch.fibers[t].state == place;
  }
  return any;
}

void release(int first, int last) {
  for (int t = first; t < last; ++t)
    if (launch.fibers[t].state != DONE) launch.fibers[t].state = READY;
}

bool release_all() {
  bool released = false;
  int count = thread_count();
  for (int first = 0; first < count; first += WARP) {
    int last = first + WARP < count ? first + WARP : count;
    for (State place : {AT_WARP, AT_SHUFFLE}) {
      if (!arrived(first, last, place)) continue;
      if (place == AT_WARP) ++launch.warp_epochs[first / WARP];
      release(first, last);
      released = true;
    }
  }
  if (!released && arrived(0, count, AT_BLOCK)) {
    launch.any = 0;
    for (int t = 0; t < count; ++t) launch.any |= launch.fibers[t].state == AT_BLOCK ? launch.fibers[t].flag : 0;
    ++launch.block_epoch;
    release(0, count);
    released = true;
  }
  return released;
}

void report_deadlock() {
  char text[256] = "";
  int length = 0, count = thread_count();
  for (State place : {AT_WARP, AT_SHUFFLE, AT_BLOCK, DONE}) {
    int first = -1, waiting = 0;
    for (int t = 0; t < count; ++t)
      if (launch.fibers[t].state == place && ++waiting == 1) first = t;
    if (waiting)
      length += snprintf(text + length, sizeof text - length, "%s%d at %s (first: %d)", length ? ", " : "", waiting,
                         PLACES[place], first);
  }
  fail("threads wait for each other at different barriers: %s", text);
}

void run_block(bool reverse) {
  int count = thread_count();
  memset(launch.shared, launch.poison, launch.shared_bytes);
  launch.shadow.assign(launch.shared_bytes, Shadow());
  for (int t = 0; t < count; ++t) {
    launch.fibers[t].state = READY;
    launch.fibers[t].shuffles = launch.fibers[t].groups = 0;
  }
  do {
    for (int k = 0; k < count && !launch.failed; ++k) {
      int t = reverse ? count - 1 - k : k;
      if (launch.fibers[t].state == READY) resume(t);
    }
    if (launch.failed) return;
  } while (release_all());
  for (int t = 0; t < count; ++t)
    if (launch.fibers[t].state != DONE) return report_deadlock();
}

} // namespace

// ---------------------------------------------------------------------------------------------- what kernels call

extern "C" {

void host_fault(const char *format, ...) {
  va_list values;
  va_start(values, format);
  fail(format, values);
  va_end(values);
  _longjmp(scheduler, 1); // and never back: the launch has ended
}

uint3 host_thread() { return {(u32)launch.current, 0, 0}; }
uint3 host_block() { return launch.block; }
uint3 host_threads() { return launch.threads; }
uint3 host_blocks() { return launch.blocks; }
u8 *host_shared() { return launch.shared; }
int host_lane() { return launch.current % WARP; }

void host_global(const void *pointer, size_t bytes, HostAccess access) {
  bool write = access == HOST_STORE;
  check_aligned(pointer, bytes, write);
  if (in_shared(pointer, bytes)) host_fault("%s of %llu bytes of shared memory as global", verb(write), (u64)bytes);
  if (!buffer_of((const u8 *)pointer, bytes)) report_outside((const u8 *)pointer, bytes, write);
}

void host_sync_warp() { yield(AT_WARP); }

u32 host_sync_block(u32 flag) {
  running().flag = flag;
  yield(AT_BLOCK);
  return launch.any;
}

// Two sets of values in turn: a lane may reach its next shuffle before the others have read this one's.
u32 host_shuffle(u32 value, int lane) {
  int thread = launch.current, set = running().shuffles++ & 1;
  launch.shuffled[set][thread] = value;
  yield(AT_SHUFFLE);
  int source = thread / WARP * WARP + lane;
  if (lane < 0 || lane >= WARP) return value;
  if (source >= thread_count() || launch.fibers[source].shuffles < running().shuffles)
    host_fault("shuffle from lane %d, which does not take part", lane);
  return launch.shuffled[set][source];
}

// Each lane's part of both matrices, and then its part of their product.
void host_tensor_multiply_add(MatrixC &c, const MatrixA &a, const MatrixB &b) {
  int thread = launch.current, lane = thread % WARP, first = thread - lane, set = running().shuffles++ & 1;
  const u32 words[6] = {a.word[0], a.word[1], a.word[2], a.word[3], b.word[0], b.word[1]};
  for (int k = 0; k < 12; ++k)
    launch.gathered[set][thread][k] = k % 2 ? half2_high(words[k / 2]) : half2_low(words[k / 2]);
  yield(AT_SHUFFLE);
  for (int t = first; t < first + WARP; ++t)
    if (t >= thread_count() || launch.fibers[t].shuffles < running().shuffles)
      host_fault("lane %d does not take part in a product of the whole warp", t - first);
  const double(*lanes)[12] = launch.gathered[set] + first;
  for (int k = 0; k < 4; ++k) {
    double sum = c.value[k];
    for (int inner = 0; inner < 16; ++inner) {
      int pair = inner / 2 % 4, third = inner / 8, which = inner % 2;
      int row = lane / 4, column = lane % 4 * 2 + k % 2;
      sum += lanes[4 * row + pair][2 * (2 * third + k / 2) + which] * lanes[4 * column + pair][2 * (4 + third) + which];
    }
    c.value[k] = (float)sum;
  }
}

bool host_is_last_block(u32 *counter, u32 blocks) {
  host_add(counter, 1);
  if (*counter != blocks) return false;
  *counter = 0;
  return true;
}

void host_async_copy(void *shared, const void *global) {
  check_aligned(shared, 16, true);
  host_global(global, 16, HOST_LOAD);
  if (!in_shared(shared, 16))
    host_fault("async copy to offset %lld of shared memory, which has %u bytes",
               (long long)((u8 *)shared - launch.shared), launch.shared_bytes);
  check(shared, 16, true);
  memset(shared, launch.poison, 16);
  Fiber &fiber = running();
  fiber.copies.push_back({(u8 *)shared, (const u8 *)global, fiber.groups});
}

void host_async_commit() { ++running().groups; }

void host_async_wait(int groups) {
  Fiber &fiber = running();
  size_t done = 0;
  while (done < fiber.copies.size() && fiber.copies[done].group < fiber.groups - groups) copy16(fiber.copies[done++]);
  fiber.copies.erase(fiber.copies.begin(), fiber.copies.begin() + done);
}

void host_add(u32 *counter, u32 n) {
  check_aligned(counter, 4, true);
  const Buffer *b = buffer_of((u8 *)counter, 4);
  if (!in_shared(counter, 4) && !(b && b->writable)) report_outside((u8 *)counter, 4, true);
  *counter += n;
}

// ------------------------------------------------------------------------------------------------- what Python calls

// 0, or 1 with a message in `message`.
int host_launch(void (*entry)(const void *frame), const void *frame, u64 frame_bytes, const u32 *blocks, u32 threads,
                u32 shared_bytes, const Buffer *buffers, int buffer_count, int reverse, int poison, char *message,
                u64 message_bytes) {
  static_assert(sizeof(u64) == sizeof(void *), "64-bit hosts only");
  std::vector<u8> shared(shared_bytes + 1024);
  launch.entry = entry;
  launch.frame = frame;
  launch.blocks = {blocks[0], blocks[1], blocks[2]};
  launch.threads = {threads, 1, 1};
  launch.buffers.assign(buffers, buffers + buffer_count);
  launch.buffers.push_back({(u8 *)frame, frame_bytes, 0, "the arguments"});
  launch.shared = (u8 *)(((u64)shared.data() + 1023) / 1024 * 1024);
  launch.shared_bytes = shared_bytes;
  launch.poison = poison;
  launch.block_epoch = 0;
  launch.failed = false;
  launch.current = -1;
  launch.fibers.assign(threads, Fiber());
  launch.stacks = (u8 *)mmap(nullptr, threads * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (launch.stacks == MAP_FAILED) fail("no memory for %u stacks", threads);
  u32 count = blocks[0] * blocks[1] * blocks[2];
  for (u32 k = 0; k < count && !launch.failed; ++k) {
    u32 b = reverse ? count - 1 - k : k;
    launch.block = {b % blocks[0], b / blocks[0] % blocks[1], b / blocks[0] / blocks[1]};
    run_block(reverse);
  }
  if (launch.stacks != MAP_FAILED) munmap(launch.stacks, threads * STACK);
  if (launch.failed) snprintf(message, message_bytes, "%s", launch.message);
  return launch.failed;
}

// ------------------------------------------------------------------------------------- what the compiler's checks call

void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_read_range(void *p, u64 bytes) { check(p, bytes, false); }
void __tsan_write_range(void *p, u64 bytes) { check(p, bytes, true); }
#define HOOKS(bytes)                                                                                                   \
  void __tsan_read##bytes(void *p) { check(p, bytes, false); }                                                         \
  void __tsan_write##bytes(void *p) { check(p, bytes, true); }                                                         \
  void __tsan_unaligned_read##bytes(void *p) { check(p, bytes, false); }                                               \
  void __tsan_unaligned_write##bytes(void *p) { check(p, bytes, true); }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
void *__tsan_memcpy(void *to, const void *from, u64 bytes) {
  check(from, bytes, false);
  check(to, bytes, true);
  return memcpy(to, from, bytes);
}
void *__tsan_memset(void *to, int value, u64 bytes) {
  check(to, bytes, true);
  return memset(to, value, bytes);
}

// Each hook's data begins with the place in the source.
struct Place {
  const char *file;
  u32 line, column;
};
[[noreturn]] static void report(const void *data, const char *what) {
  const Place &place = *(const Place *)data;
  const char *slash = strrchr(place.file, '/');
  host_fault("%s:%u: %s", slash ? slash + 1 : place.file, place.line, what);
}
void __ubsan_handle_type_mismatch_v1(void *data, void *) { report(data, "misaligned access"); }
void __ubsan_handle_out_of_bounds(void *data, void *) { report(data, "index outside of the array"); }
void __ubsan_handle_shift_out_of_bounds(void *data, void *, void *) {
  report(data, "shift by the type's width or more");
}
void __ubsan_handle_float_cast_overflow(void *data, void *) { report(data, "float outside of the integer's range"); }
void __ubsan_handle_divrem_overflow(void *data, void *, void *) { report(data, "division by zero"); }

} // extern "C"
