// What a thread may do with memory: accesses within buffers, alignment, races in shared memory. For `runner.cpp` alone.
#ifndef POLAR_MEMORY_CHECKS_H
#define POLAR_MEMORY_CHECKS_H
#include "fibers.h"

namespace {

const char *verb(bool write) { return write ? "write" : "read"; }

bool ordered(const Access &before, int thread) {
  return before.thread < 0 || before.thread == thread || before.block_epoch != launch.block_epoch ||
         (before.thread / WARP == thread / WARP && before.warp_epoch != launch.warp_epochs[thread / WARP]);
}

void check_race(u64 offset, u64 bytes, bool write) {
  int thread = launch.current;
  Access now;
  now.thread = thread;
  now.block_epoch = launch.block_epoch;
  now.warp_epoch = launch.warp_epochs[thread / WARP];
  for (u64 k = offset; k < offset + bytes; ++k) {
    Shadow &shadow = launch.shadow[k];
    const Access *before = !ordered(shadow.write, thread) ? &shadow.write : nullptr;
    if (write && !ordered(shadow.read, thread)) before = &shadow.read;
    if (write && !ordered(shadow.other_read, thread)) before = &shadow.other_read;
    if (before)
      host_fault("race: %s of shared byte %llu, which thread %d has %s without a barrier in between", verb(write), k,
                 before->thread, before == &shadow.write ? "written" : "read");
    if (write) {
      shadow.write = now;
    } else {
      if (shadow.read.thread / WARP != thread / WARP) shadow.other_read = shadow.read;
      shadow.read = now;
    }
  }
}

// The buffer nearest to an address says most about a wrong one.
[[noreturn]] void report_outside(const u8 *p, u64 bytes, bool write) {
  std::vector<Buffer> known = launch.buffers;
  known.push_back({launch.shared, launch.shared_bytes, 1, "shared memory"});
  auto distance = [&](const Buffer &b) {
    return (u64)(p < b.begin ? b.begin - p : p < b.begin + b.size ? 0 : p - b.begin - b.size);
  };
  const Buffer *nearest = &known[0];
  for (const Buffer &b : known)
    if (distance(b) < distance(*nearest)) nearest = &b;
  if (distance(*nearest) > 1 << 16)
    host_fault("%s of %llu bytes at %p, outside of every buffer", verb(write), bytes, (const void *)p);
  host_fault("%s of %llu bytes at offset %lld of %s, which has %llu", verb(write), bytes,
             (long long)(p - nearest->begin), nearest->name, nearest->size);
}

bool in_shared(const void *p, u64 bytes) {
  return (u8 *)p >= launch.shared && (u8 *)p + bytes <= launch.shared + launch.shared_bytes;
}

const Buffer *buffer_of(const u8 *p, u64 bytes) {
  for (const Buffer &b : launch.buffers)
    if (p >= b.begin && p + bytes <= b.begin + b.size) return &b;
  return nullptr;
}

void check(const void *pointer, u64 bytes, bool write) {
  const u8 *p = (const u8 *)pointer;
  if (launch.current < 0) return;
  u64 offset = p - launch.stack;
  if (offset <= STACK && bytes <= STACK - offset) return; // as most are without optimization
  if (in_shared(p, bytes)) return check_race(p - launch.shared, bytes, write);
  if (const Buffer *b = buffer_of(p, bytes)) {
    if (write && !b->writable)
      host_fault("write of %llu bytes at offset %llu of %s, an input", bytes, (u64)(p - b->begin), b->name);
    return;
  }
  Dl_info kernel, other; // a constant table of the kernel's?
  if (!write && dladdr((void *)launch.entry, &kernel) && dladdr(pointer, &other) && kernel.dli_fbase == other.dli_fbase)
    return;
  report_outside(p, bytes, write);
}

void check_aligned(const void *pointer, u64 bytes, bool write) {
  if ((u64)pointer % bytes) host_fault("misaligned %s of %llu bytes at %p", verb(write), bytes, pointer);
}

// memcpy itself is not seen by the hooks.
void copy16(const Copy &copy) {
  check(copy.shared, 16, true);
  memcpy(copy.shared, copy.global, 16);
}

} // namespace
#endif
