// The state of a launch, how it fails, and its threads as fibers. For `runner.cpp` alone, which
// `test/helpers/harness.py` compiles.
#ifndef POLAR_FIBERS_H
#define POLAR_FIBERS_H
// Fibers switch by _longjmp from one stack to another. glibc's checked _longjmp knows one stack only and aborts the
// process; Ubuntu's compiler asks for it by default.
#undef _FORTIFY_SOURCE
#include <csetjmp>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>

#include "cuda.cuh"

namespace {

const int WARP = 32, MAX_THREADS = 1024;
const size_t STACK = 1 << 16;

struct Buffer {
  u8 *begin;
  u64 size;
  int writable;
  const char *name;
};

// One access to a byte of shared memory: by whom, and how many barriers of the block and of the warp before it.
struct Access {
  int thread = -1;
  u32 block_epoch = 0, warp_epoch = 0;
};
// The last write, the last read, and the last read by another warp than that.
struct Shadow {
  Access write, read, other_read;
};

struct Copy {
  u8 *shared;
  const u8 *global;
  int group;
};

enum State { READY, AT_WARP, AT_SHUFFLE, AT_BLOCK, DONE };
const char *const PLACES[] = {"running", "sync_warp", "a shuffle", "sync_block", "done"};

struct Fiber {
  jmp_buf context;
  bool started = false;
  State state = DONE;
  u32 flag = 0;
  int shuffles = 0;
  int groups = 0; // async groups committed
  std::vector<Copy> copies;
};

struct Launch {
  void (*entry)(const void *frame); // the kernel
  const void *frame;
  uint3 blocks, threads, block;
  std::vector<Buffer> buffers;
  u8 *shared;
  u32 shared_bytes;
  std::vector<Shadow> shadow;
  u32 block_epoch, warp_epochs[MAX_THREADS / WARP]; // barriers so far
  u32 shuffled[2][MAX_THREADS];
  double gathered[2][MAX_THREADS][12];
  u32 any;
  int poison;
  int current; // thread that runs, -1: none
  bool failed;
  char message[1024];
  u8 *stacks; // of STACK bytes a thread
  u8 *stack;  // of the thread that runs
  std::vector<Fiber> fibers;
};

Launch launch;
jmp_buf scheduler;

int thread_count() { return (int)launch.threads.x; }
u8 *stack_of(int thread) { return launch.stacks + thread * STACK; }
Fiber &running() { return launch.fibers[launch.current]; }

// What lies on the stack for each function that runs, as compiled with -fno-omit-frame-pointer.
struct Frame {
  const Frame *caller;
  const u8 *back; // in the caller's code
};

// Adds a line to the message: the running thread's calls as offsets in the kernel's library, innermost first.
void add_calls(int length) {
  Dl_info kernel, called;
  if (launch.current < 0 || !dladdr((void *)launch.entry, &kernel)) return;
  const u8 *first = stack_of(launch.current), *last = first + STACK - sizeof(Frame);
  launch.message[length++] = '\n';
  for (const Frame *frame = (const Frame *)__builtin_frame_address(0);
       (const u8 *)frame >= first && (const u8 *)frame <= last; frame = frame->caller) {
    int room = (int)sizeof launch.message - length;
    first = (const u8 *)(frame + 1); // a stack grows downwards
    if (room > 32 && dladdr(frame->back, &called) && called.dli_fbase == kernel.dli_fbase)
      length += snprintf(launch.message + length, room, "0x%llx ", (u64)(frame->back - (u8 *)called.dli_fbase - 1));
  }
}

void fail(const char *format, va_list values) {
  char text[768], thread[32] = "";
  vsnprintf(text, sizeof text, format, values);
  if (launch.current >= 0) snprintf(thread, sizeof thread, ", thread %d", launch.current);
  const uint3 &b = launch.block;
  int length = snprintf(launch.message, sizeof launch.message, "block (%u, %u, %u)%s: %s", b.x, b.y, b.z, thread, text);
  add_calls(length);
  launch.failed = true;
}

__attribute__((format(printf, 1, 2))) void fail(const char *format, ...) {
  va_list values;
  va_start(values, format);
  fail(format, values);
  va_end(values);
}

// -------------------------------------------------------------------------------------------------------------- fibers

void yield(State state) {
  Fiber &fiber = running();
  fiber.state = state;
  if (!_setjmp(fiber.context)) _longjmp(scheduler, 1);
}

void fiber_main() {
  for (;;) { // one block after another
    launch.entry(launch.frame);
    host_async_commit();
    host_async_wait(0);
    yield(DONE);
  }
}

// The first time on a stack of its own; after that a switch is a jump, without ucontext's system calls.
void resume(int thread) {
  Fiber &fiber = launch.fibers[thread];
  launch.current = thread;
  launch.stack = stack_of(thread);
  if (!_setjmp(scheduler)) {
    if (fiber.started) _longjmp(fiber.context, 1);
    fiber.started = true;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = stack_of(thread);
    context.uc_stack.ss_size = STACK;
    context.uc_link = nullptr;
    makecontext(&context, fiber_main, 0);
    setcontext(&context);
  }
  launch.current = -1;
}

} // namespace
#endif
