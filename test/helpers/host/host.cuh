// What `kernels/cuda.cuh` gives, in plain C++: included by it under POLAR_HOST. Arithmetic rounds as the GPU's does;
// every memory access of a kernel is checked by the hooks in `runner.cpp`.
#ifndef POLAR_HOST_CUH
#define POLAR_HOST_CUH
#include <stddef.h>

extern "C" { // of the C library; <cmath> would take a tenth of the time to compile
int abs(int x) noexcept;
float ceilf(float x) noexcept;
float fabsf(float x) noexcept;
float fmaf(float x, float y, float z) noexcept;
float fmaxf(float x, float y) noexcept;
float fminf(float x, float y) noexcept;
}

#define DEVICE inline // not always: that takes twice as long to compile
#define CONSTANT constexpr
#define CONSTANT_MEMORY static const
#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __constant__ static const
#define __align__(bytes) alignas(bytes)
#define SHARED_MEMORY(name) u8 *const name = host_shared()

struct alignas(8) uint2 {
  u32 x, y;
};
struct alignas(16) uint4 {
  u32 x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct uint3 {
  u32 x, y, z;
};
inline uint2 make_uint2(u32 x, u32 y) { return {x, y}; }
inline uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

// ---- runner.cpp. What is asked of a thread's place is constant to that thread.
enum HostAccess { HOST_LOAD, HOST_STORE };
extern "C" {
[[noreturn]] void host_fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
uint3 host_thread() __attribute__((const));
uint3 host_block() __attribute__((const));
uint3 host_threads() __attribute__((const));
uint3 host_blocks() __attribute__((const));
u8 *host_shared() __attribute__((const));
void host_global(const void *pointer, size_t bytes, HostAccess access);
void host_sync_warp();
u32 host_sync_block(u32 flag);
u32 host_shuffle(u32 value, int lane);
void host_tensor_multiply_add(MatrixC &c, const MatrixA &a, const MatrixB &b);
bool host_is_last_block(u32 *counter, u32 blocks);
int host_lane();
void host_async_copy(void *shared, const void *global);
void host_async_commit();
void host_async_wait(int groups);
void host_add(u32 *counter, u32 n);
}
#define threadIdx host_thread()
#define blockIdx host_block()
#define blockDim host_threads()
#define gridDim host_blocks()
const int warpSize = 32;

// ---- bits
DEVICE float as_float(u32 bits) {
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}
DEVICE u32 as_bits(float value) {
  u32 bits;
  __builtin_memcpy(&bits, &value, 4);
  return bits;
}
DEVICE u32 and_or(u32 a, u32 b, u32 c) { return (a & b) | c; }
DEVICE int __popc(u32 a) { return __builtin_popcount(a); }

// ---- arithmetic.cpp: what GPUs have instructions for. A word has two halves, low lane first.
u32 permute(u32 a, u32 b, u32 selector);
u32 half2_add(u32 a, u32 b);
u32 half2_sub(u32 a, u32 b);
u32 half2_mul(u32 a, u32 b);
u32 half2_fma(u32 a, u32 b, u32 c);
u32 half2_fma_sat(u32 a, u32 b, u32 c);
u32 half2_min(u32 a, u32 b);
u32 half2_max(u32 a, u32 b);
u32 half2_pack(float low, float high);
float half2_low(u32 a);
float half2_high(u32 a);
// The approximations flush subnormal numbers to zero.
float fast_rcp(float x);
float fast_sqrt(float x);
float fast_exp2(float x);
DEVICE u32 half2_fma_relu(u32 a, u32 b, u32 c) { return half2_max(half2_fma(a, b, c), 0); }
DEVICE u32 half2_abs(u32 a) { return a & 0x7fff7fffu; }
DEVICE u32 half2_neg(u32 a) { return a ^ 0x80008000u; }
DEVICE u32 half2_low_twice(u32 a) { return permute(a, a, 0x1010); }
DEVICE u32 half2_high_twice(u32 a) { return permute(a, a, 0x3232); }
DEVICE float saturate(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }
DEVICE float nan_value() { return as_float(0x7fc00000u); }
#define HOST_MIN_MAX(type)                                                                                             \
  DEVICE type min(type a, type b) { return b < a ? b : a; }                                                            \
  DEVICE type max(type a, type b) { return a < b ? b : a; }
HOST_MIN_MAX(int)
HOST_MIN_MAX(u32)
HOST_MIN_MAX(u64)
DEVICE float min(float a, float b) { return fminf(a, b); }
DEVICE float max(float a, float b) { return fmaxf(a, b); }

// ---- a word of two 16-bit integers
DEVICE u32 dot_lanes(u32 lanes, u32 bytes, u32 sum) {
  return (lanes & 0xffff) * (bytes & 255) + (lanes >> 16) * (bytes >> 8 & 255) + sum;
}
template <u32 HIGHEST> DEVICE u32 clamp_lanes(u32 lanes) {
  const auto clamped = [](u32 lane) { return (u32)min(max((int)(lane ^ 0x8000) - 0x8000, 0), (int)HIGHEST); };
  return clamped(lanes & 0xffff) | clamped(lanes >> 16) << 16;
}

// ---- global memory
template <typename T> DEVICE T host_load(const void *p) {
  host_global(p, sizeof(T), HOST_LOAD);
  return *(const T *)p;
}
template <typename T> DEVICE void host_store(void *p, T value) {
  host_global(p, sizeof(T), HOST_STORE);
  *(T *)p = value;
}
DEVICE u32 load8(const void *p) { return host_load<u8>(p); }
DEVICE u32 load16(const void *p) { return host_load<u16>(p); }
DEVICE u32 load32(const void *p) { return host_load<u32>(p); }
DEVICE uint2 load64(const void *p) { return host_load<uint2>(p); }
DEVICE uint4 load128(const void *p) { return host_load<uint4>(p); }
DEVICE void store8(void *p, u32 a) { host_store(p, (u8)a); }
DEVICE void store16(void *p, u32 a) { host_store(p, (u16)a); }
DEVICE void store32(void *p, u32 a) { host_store(p, a); }
DEVICE void store64(void *p, u32 a, u32 b) { host_store(p, make_uint2(a, b)); }
DEVICE void store128(void *p, u32 a, u32 b, u32 c, u32 d) { host_store(p, make_uint4(a, b, c, d)); }
DEVICE float load_bypassing_l1(const float *p) { return host_load<float>(p); }

// ---- asynchronous copies happen at async_wait here, so that a kernel that reads too early fails
DEVICE void async_copy16(void *shared, const void *global) { host_async_copy(shared, global); }
DEVICE void async_commit() { host_async_commit(); }
template <int N> DEVICE void async_wait() { host_async_wait(N); }

// ---- threads
DEVICE void launch_dependents() {}
DEVICE void compiler_fence() {}
DEVICE void sync_block() { host_sync_block(0); }
DEVICE void sync_warp() { host_sync_warp(); }
// A lane beyond the warp gives the own value back, as on the GPU.
DEVICE u32 shuffle_down(u32 value, int lanes) { return host_shuffle(value, host_lane() + lanes); }
DEVICE u32 shuffle_up(u32 value, int lanes) { return host_shuffle(value, host_lane() - lanes); }
DEVICE u32 shuffle_xor(u32 value, int lanes) { return host_shuffle(value, host_lane() ^ lanes); }
DEVICE u32 shuffle(u32 value, int lane) { return host_shuffle(value, lane & 31); }
DEVICE bool any_in_warp(bool flag) {
  u32 any = flag;
  for (int lanes = 1; lanes < 32; lanes *= 2) any |= shuffle_xor(any, lanes);
  return any != 0;
}
DEVICE u32 lanes_with(bool flag) {
  u32 lanes = (u32)flag << host_lane();
  for (int k = 1; k < 32; k *= 2) lanes |= shuffle_xor(lanes, k);
  return lanes;
}
DEVICE bool any_in_block(bool flag) { return host_sync_block(flag) != 0; }
DEVICE void count_add(u32 *counter, u32 n) { host_add(counter, n); }
DEVICE bool is_last_block(u32 *counter, u32 blocks) {
  sync_block();
  return any_in_block(threadIdx.x == 0 && host_is_last_block(counter, blocks));
}

// ---- tensor cores; a GPU's sums lose somewhat more than one rounding to float
#define HAS_TENSOR 1
DEVICE void tensor_multiply_add(MatrixC &c, const MatrixA &a, const MatrixB &b) { host_tensor_multiply_add(c, a, b); }
DEVICE MatrixA load_matrix(const u16 *first, int pitch) {
  const u16 *row = first + host_lane() / 4 * pitch + host_lane() % 4 * 2;
  return {{*(const u32 *)row, *(const u32 *)(row + 8 * pitch), *(const u32 *)(row + 8),
           *(const u32 *)(row + 8 * pitch + 8)}};
}
#endif
