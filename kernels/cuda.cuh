// Everything that the kernels need from the device: arithmetic on pairs of half, byte permutes, wide memory accesses,
// asynchronous copies, barriers, tensor cores. The only file with PTX. The test harness defines the same names in plain
// C++ (POLAR_HOST), so that every kernel also runs without a GPU. NVRTC 11.4 and later, no headers.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// One lane's elements of the matrices that a warp multiplies on tensor cores, with lane = 4 g + t (PTX ISA,
// mma.m16n8k16). A word holds two halves of neighboring columns (A) or rows (B).
struct MatrixA { // 16 x 16: rows g and g + 8 at columns 2t, 2t + 1 (words 0, 1), and at 2t + 8, 2t + 9 (words 2, 3)
  u32 word[4];
};
struct MatrixB { // 16 x 8: column g at rows 2t, 2t + 1 (word 0) and 2t + 8, 2t + 9 (word 1)
  u32 word[2];
};
struct MatrixC { // 16 x 8 floats: row g at columns 2t, 2t + 1 (values 0, 1), row g + 8 there, too (values 2, 3)
  float value[4];
};

#ifdef POLAR_HOST
#include "host.cuh"
#else
#define DEVICE __device__ __forceinline__
#define CONSTANT __device__ constexpr // a function that the compiler evaluates
#define CONSTANT_MEMORY __constant__ const
#define SHARED_MEMORY(name) extern __shared__ __align__(16) u8 name[] // as many bytes as the launch asks for

// ---- bits
// byte k of the result is byte (selector nibble k) of the eight bytes b:a
DEVICE u32 permute(u32 a, u32 b, u32 selector) { return __byte_perm(a, b, selector); }
// a & b | c as one instruction, which the compiler does not always make of it
DEVICE u32 and_or(u32 a, u32 b, u32 c) {
  u32 d;
  asm("lop3.b32 %0,%1,%2,%3,0xEA;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
DEVICE float as_float(u32 bits) { return __uint_as_float(bits); }
DEVICE u32 as_bits(float value) { return __float_as_uint(value); }

// clang-format off: a table of instructions, one a line
// ---- a word of two halves, the low lane first; every operation rounds to nearest even
DEVICE u32 half2_add(u32 a, u32 b) { u32 d; asm("add.rn.f16x2 %0,%1,%2;" : "=r"(d) : "r"(a), "r"(b)); return d; }
DEVICE u32 half2_sub(u32 a, u32 b) { u32 d; asm("sub.rn.f16x2 %0,%1,%2;" : "=r"(d) : "r"(a), "r"(b)); return d; }
DEVICE u32 half2_mul(u32 a, u32 b) { u32 d; asm("mul.rn.f16x2 %0,%1,%2;" : "=r"(d) : "r"(a), "r"(b)); return d; }
DEVICE u32 half2_fma(u32 a, u32 b, u32 c) { u32 d; asm("fma.rn.f16x2 %0,%1,%2,%3;"
    : "=r"(d) : "r"(a), "r"(b), "r"(c)); return d; }
// the same, clamped to [0, 1]; NaN becomes 0
DEVICE u32 half2_fma_sat(u32 a, u32 b, u32 c) { u32 d; asm("fma.rn.sat.f16x2 %0,%1,%2,%3;"
    : "=r"(d) : "r"(a), "r"(b), "r"(c)); return d; }
DEVICE u32 half2_abs(u32 a) { u32 d; asm("abs.f16x2 %0,%1;" : "=r"(d) : "r"(a)); return d; }
DEVICE u32 half2_neg(u32 a) { u32 d; asm("neg.f16x2 %0,%1;" : "=r"(d) : "r"(a)); return d; }
// one lane as both: no instruction, but part of the one that reads it
DEVICE u32 half2_low_twice(u32 a) { u32 d; asm("{.reg .b16 l,h; mov.b32 {l,h}, %1; mov.b32 %0, {l,l};}"
    : "=r"(d) : "r"(a)); return d; }
DEVICE u32 half2_high_twice(u32 a) { u32 d; asm("{.reg .b16 l,h; mov.b32 {l,h}, %1; mov.b32 %0, {h,h};}"
    : "=r"(d) : "r"(a)); return d; }
DEVICE float half2_low(u32 a) { float f; asm("{.reg .f16 l,h; mov.b32 {l,h}, %1; cvt.f32.f16 %0, l;}"
    : "=f"(f) : "r"(a)); return f; }
DEVICE float half2_high(u32 a) { float f; asm("{.reg .f16 l,h; mov.b32 {l,h}, %1; cvt.f32.f16 %0, h;}"
    : "=f"(f) : "r"(a)); return f; }
#if __CUDA_ARCH__ >= 800
DEVICE u32 half2_pack(float low, float high) { u32 d; asm("cvt.rn.f16x2.f32 %0,%1,%2;"
    : "=r"(d) : "f"(high), "f"(low)); return d; }
DEVICE u32 half2_min(u32 a, u32 b) { u32 d; asm("min.f16x2 %0,%1,%2;" : "=r"(d) : "r"(a), "r"(b)); return d; }
DEVICE u32 half2_max(u32 a, u32 b) { u32 d; asm("max.f16x2 %0,%1,%2;" : "=r"(d) : "r"(a), "r"(b)); return d; }
// half2_fma, or 0 where that is negative; for numbers only
DEVICE u32 half2_fma_relu(u32 a, u32 b, u32 c) { u32 d; asm("fma.rn.relu.f16x2 %0,%1,%2,%3;"
    : "=r"(d) : "r"(a), "r"(b), "r"(c)); return d; }
#else
DEVICE u32 half2_pack(float low, float high) { u32 d; asm("{.reg .f16 l,h; cvt.rn.f16.f32 l,%1; cvt.rn.f16.f32 h,%2; mov.b32 %0,{l,h};}"
    : "=r"(d) : "f"(low), "f"(high)); return d; }
// before sm_80 there is no minimum of halves: compare, and choose with the comparison's mask
DEVICE u32 half2_less(u32 a, u32 b) { u32 m; asm("set.lt.u32.f16x2 %0,%1,%2;" : "=r"(m) : "r"(a), "r"(b)); return m; }
DEVICE u32 half2_min(u32 a, u32 b) { u32 m = half2_less(a, b); return (a & m) | (b & ~m); }
DEVICE u32 half2_max(u32 a, u32 b) { u32 m = half2_less(a, b); return (b & m) | (a & ~m); }
DEVICE u32 half2_fma_relu(u32 a, u32 b, u32 c) { return half2_max(half2_fma(a, b, c), 0); }
#endif

// ---- a word of two 16-bit integers
// the lanes times the two lower bytes of another word, plus a sum
DEVICE u32 dot_lanes(u32 lanes, u32 bytes, u32 sum) { u32 d; asm("dp2a.lo.u32.u32 %0,%1,%2,%3;"
    : "=r"(d) : "r"(lanes), "r"(bytes), "r"(sum)); return d; }
// signed lanes clamped to [0, HIGHEST]; numbers below 31744 only, which are ordered as the halves of the same bits
#if __CUDA_ARCH__ >= 900
template <u32 HIGHEST> DEVICE u32 clamp_lanes(u32 lanes) { u32 d; asm("min.s16x2.relu %0,%1,%2;"
    : "=r"(d) : "r"(lanes), "r"(HIGHEST * 0x10001u)); return d; }
#elif __CUDA_ARCH__ >= 800 // a maximum with what is no number is 0
template <u32 HIGHEST> DEVICE u32 clamp_lanes(u32 lanes) { return half2_min(half2_max(lanes, 0), HIGHEST * 0x10001u); }
#else
DEVICE u32 lane_signs(u32 lanes) { u32 d; asm("prmt.b32 %0,%1,0,0xbb99;" : "=r"(d) : "r"(lanes)); return d; }
template <u32 HIGHEST> DEVICE u32 clamp_lanes(u32 lanes) {
  return half2_min(lanes & ~lane_signs(lanes), HIGHEST * 0x10001u);
}
#endif

// ---- float, two units in the last place
DEVICE float fast_rcp(float x) { float y; asm("rcp.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x)); return y; }
DEVICE float fast_sqrt(float x) { float y; asm("sqrt.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x)); return y; }
DEVICE float fast_exp2(float x) { float y; asm("ex2.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x)); return y; }
DEVICE float saturate(float x) { return __saturatef(x); }  // NaN becomes 0
DEVICE float nan_value() { return __uint_as_float(0x7fc00000u); }

// ---- global memory. Inputs are read through the read-only path.
DEVICE u32 load8(const void* p) { u32 v; asm("ld.global.nc.u8 %0,[%1];" : "=r"(v) : "l"(p)); return v; }
DEVICE u32 load16(const void* p) { u32 v; asm("ld.global.nc.u16 %0,[%1];" : "=r"(v) : "l"(p)); return v; }
DEVICE u32 load32(const void* p) { u32 v; asm("ld.global.nc.u32 %0,[%1];" : "=r"(v) : "l"(p)); return v; }
DEVICE uint2 load64(const void* p) { uint2 v; asm("ld.global.nc.v2.u32 {%0,%1},[%2];"
    : "=r"(v.x), "=r"(v.y) : "l"(p)); return v; }
DEVICE uint4 load128(const void* p) { uint4 v; asm("ld.global.nc.v4.u32 {%0,%1,%2,%3},[%4];"
    : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p)); return v; }
DEVICE void store8(void* p, u32 a) { *(u8*)p = (u8)a; }
DEVICE void store16(void* p, u32 a) { *(u16*)p = (u16)a; }
DEVICE void store32(void* p, u32 a) { *(u32*)p = a; }
DEVICE void store64(void* p, u32 a, u32 b) { *(uint2*)p = make_uint2(a, b); }
DEVICE void store128(void* p, u32 a, u32 b, u32 c, u32 d) { *(uint4*)p = make_uint4(a, b, c, d); }
// reads what another block of the same launch may have stored (after `is_last_block`)
DEVICE float load_bypassing_l1(const float* p) { float v; asm volatile("ld.global.cg.f32 %0,[%1];"
    : "=f"(v) : "l"(p) : "memory"); return v; }

// clang-format on

// ---- from sm_90 on: says at the start of a block that nothing in the stream need wait for its end. No launch here
// begins early by it, but a batch of the smallest work of `mono_half` takes 2.49 instead of 2.70 us a frame (H200).
#if __CUDA_ARCH__ >= 900
DEVICE void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
#else
DEVICE void launch_dependents() {}
#endif

// ---- the compiler moves no memory access across compiler_fence: loads that follow do not occupy registers yet, of
// which sm_72 has too few
#if __CUDA_ARCH__ >= 800
DEVICE void compiler_fence() {}
#else
DEVICE void compiler_fence() { asm volatile("" ::: "memory"); }
#endif

// ---- threads
DEVICE void sync_block() { __syncthreads(); }
DEVICE void sync_warp() { __syncwarp(); }
DEVICE u32 shuffle(u32 value, int lane) { return __shfl_sync(0xffffffffu, value, lane); }
DEVICE u32 shuffle_down(u32 value, int lanes) { return __shfl_down_sync(0xffffffffu, value, lanes); }
DEVICE u32 shuffle_up(u32 value, int lanes) { return __shfl_up_sync(0xffffffffu, value, lanes); }
DEVICE bool any_in_warp(bool flag) { return __any_sync(0xffffffffu, flag); }
DEVICE u32 lanes_with(bool flag) { return __ballot_sync(0xffffffffu, flag); } // a bit for each
DEVICE bool any_in_block(bool flag) { return __syncthreads_or(flag); }
DEVICE void count_add(u32 *counter, u32 n) { atomicAdd(counter, n); }
// Whether this block is the last of `blocks` blocks to call it with a counter, which it sets to 0 again. The last block
// sees everything that the others stored before their call. Every thread of a block must call it.
DEVICE bool is_last_block(u32 *counter, u32 blocks) {
  u32 before = 0;
  __syncthreads();
  if (threadIdx.x == 0) // releases and acquires for all threads of the block, between the two barriers
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0,[%1],%2;"
                 : "=r"(before)
                 : "l"(counter), "r"(blocks - 1)
                 : "memory");
  return __syncthreads_or(threadIdx.x == 0 && before == blocks - 1);
}

// ---- from sm_80 on. Tensor cores: c += a b, summed in float; every lane of the warp must call it. Asynchronous copies
// of 16 bytes from global to shared memory, in groups that async_commit closes; async_wait<n> waits until at most n
// groups are incomplete.
#if __CUDA_ARCH__ >= 800
#define HAS_TENSOR 1
DEVICE void async_copy16(void *shared, const void *global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((u32)__cvta_generic_to_shared(shared)), "l"(global)
               : "memory");
}
DEVICE void async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> DEVICE void async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
DEVICE void tensor_multiply_add(MatrixC &c, const MatrixA &a, const MatrixB &b) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(c.value[0]), "+f"(c.value[1]), "+f"(c.value[2]), "+f"(c.value[3])
      : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(b.word[0]), "r"(b.word[1]));
}
// The matrix of 16 pixels x 16 channels that begins there in shared memory, `pitch` halves from pixel to pixel; pieces
// of eight channels are aligned to 16 bytes.
DEVICE MatrixA load_matrix(const u16 *first, int pitch) {
  const int lane = threadIdx.x % 32; // has the address of a row of eight channels
  const u32 row = (u32)__cvta_generic_to_shared(first + lane % 16 * pitch + lane / 16 * 8);
  MatrixA a;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
               : "=r"(a.word[0]), "=r"(a.word[1]), "=r"(a.word[2]), "=r"(a.word[3])
               : "r"(row)
               : "memory");
  return a;
}
#else
#define HAS_TENSOR 0
#if __CUDA_ARCH__ >= 700
// ---- the tensor cores of sm_70 to sm_75, whose lanes have elements in an order of the compiler: 16 x 16 matrices
struct PackedMatrix { // of halves: a factor
  u32 word[8];
};
struct PackedSum { // of floats: the sum of products
  float value[8];
};
#define PACKED_WORDS(m)                                                                                                \
  "=r"(m.word[0]), "=r"(m.word[1]), "=r"(m.word[2]), "=r"(m.word[3]), "=r"(m.word[4]), "=r"(m.word[5]),                \
      "=r"(m.word[6]), "=r"(m.word[7])
// rows of the first factor from shared memory; pitch: halves, a multiple of 16
DEVICE PackedMatrix load_packed_rows(const u16 *first, int pitch) {
  PackedMatrix m;
  asm volatile("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%0,%1,%2,%3,%4,%5,%6,%7},[%8],%9;"
               : PACKED_WORDS(m)
               : "r"((u32)__cvta_generic_to_shared(first)), "r"(pitch)
               : "memory");
  return m;
}
// columns of the second factor from global memory, 16 halves each
DEVICE PackedMatrix load_packed_columns(const void *first) {
  PackedMatrix m;
  asm volatile("wmma.load.b.sync.aligned.col.m16n16k16.global.f16 {%0,%1,%2,%3,%4,%5,%6,%7},[%8],16;"
               : PACKED_WORDS(m)
               : "l"(first));
  return m;
}
DEVICE void packed_multiply_add(PackedSum &c, const PackedMatrix &a, const PackedMatrix &b) {
  asm volatile("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {%0,%1,%2,%3,%4,%5,%6,%7},"
               "{%8,%9,%10,%11,%12,%13,%14,%15},{%16,%17,%18,%19,%20,%21,%22,%23},{%0,%1,%2,%3,%4,%5,%6,%7};"
               : "+f"(c.value[0]), "+f"(c.value[1]), "+f"(c.value[2]), "+f"(c.value[3]), "+f"(c.value[4]),
                 "+f"(c.value[5]), "+f"(c.value[6]), "+f"(c.value[7])
               : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(a.word[4]), "r"(a.word[5]),
                 "r"(a.word[6]), "r"(a.word[7]), "r"(b.word[0]), "r"(b.word[1]), "r"(b.word[2]), "r"(b.word[3]),
                 "r"(b.word[4]), "r"(b.word[5]), "r"(b.word[6]), "r"(b.word[7]));
}
// rows of 16 floats in shared memory
DEVICE void store_packed(float *first, const PackedSum &c) {
  asm volatile("wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%0],{%1,%2,%3,%4,%5,%6,%7,%8},16;" ::"r"(
                   (u32)__cvta_generic_to_shared(first)),
               "f"(c.value[0]), "f"(c.value[1]), "f"(c.value[2]), "f"(c.value[3]), "f"(c.value[4]), "f"(c.value[5]),
               "f"(c.value[6]), "f"(c.value[7])
               : "memory");
}
#endif
#endif
#endif // POLAR_HOST

// The nearest to i of 0 .. size - 1. The lower limit first: where the result of max(0, min(i, size - 1)) is compared
// with size - 1, ptxas for sm_90 takes it to be equal always.
DEVICE int nearest_index(int i, int size) { return min(max(0, i), size - 1); }

// ---- on the device and on the host: 0.5 + lane / 65536 for one 16-bit lane of a word, without a conversion: the lane
// becomes the upper mantissa bits of a float whose exponent is that of 0.5
template <int HIGH> DEVICE float lane_as_float(u32 lanes) {
  return as_float(permute(lanes, 0x3F000000u, HIGH ? 0x7324 : 0x7104));
}
