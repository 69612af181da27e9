// What the kernels need from the device, and nothing more: pairs of half, byte permutes, wide memory access, barriers.
// The only file with PTX. The test harness gives the same names in plain C++ (POLAR_HOST), so that every kernel also
// runs without a GPU. NVRTC 11.4 and later, no headers.
#ifndef POLAR_CUDA_CUH
#define POLAR_CUDA_CUH

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#ifdef POLAR_HOST
#include "host.cuh"
#else
#define DEVICE __device__ __forceinline__
#define CONSTANT __device__ constexpr                                 // a function that the compiler evaluates
#define SHARED_MEMORY(name) extern __shared__ __align__(16) u8 name[] // as many bytes as the launch asks for

// ---- bits
// byte k of the result is byte (selector nibble k) of the eight bytes b:a
DEVICE u32 permute(u32 a, u32 b, u32 selector) { return __byte_perm(a, b, selector); }
DEVICE float as_float(u32 bits) { return __uint_as_float(bits); }
DEVICE u32 as_bits(float value) { return __float_as_uint(value); }

// clang-format off: one instruction a line
// ---- a word of two halves, low lane first; every operation rounds to nearest even
DEVICE u32 half2_add(u32 a, u32 b) { u32 d; asm("add.rn.f16x2 %0,%1,%2;" : "=r"(d) : "r"(a), "r"(b)); return d; }
DEVICE u32 half2_sub(u32 a, u32 b) { u32 d; asm("sub.rn.f16x2 %0,%1,%2;" : "=r"(d) : "r"(a), "r"(b)); return d; }
DEVICE u32 half2_mul(u32 a, u32 b) { u32 d; asm("mul.rn.f16x2 %0,%1,%2;" : "=r"(d) : "r"(a), "r"(b)); return d; }
DEVICE u32 half2_fma(u32 a, u32 b, u32 c) { u32 d; asm("fma.rn.f16x2 %0,%1,%2,%3;" : "=r"(d) : "r"(a), "r"(b), "r"(c)); return d; }
// the same, clamped to [0, 1]; NaN becomes 0
DEVICE u32 half2_fma_sat(u32 a, u32 b, u32 c) { u32 d; asm("fma.rn.sat.f16x2 %0,%1,%2,%3;" : "=r"(d) : "r"(a), "r"(b), "r"(c)); return d; }
DEVICE u32 half2_abs(u32 a) { u32 d; asm("abs.f16x2 %0,%1;" : "=r"(d) : "r"(a)); return d; }
DEVICE u32 half2_neg(u32 a) { u32 d; asm("neg.f16x2 %0,%1;" : "=r"(d) : "r"(a)); return d; }
DEVICE float half2_low(u32 a) { float f; asm("{.reg .f16 l,h; mov.b32 {l,h}, %1; cvt.f32.f16 %0, l;}" : "=f"(f) : "r"(a)); return f; }
DEVICE float half2_high(u32 a) { float f; asm("{.reg .f16 l,h; mov.b32 {l,h}, %1; cvt.f32.f16 %0, h;}" : "=f"(f) : "r"(a)); return f; }
#if __CUDA_ARCH__ >= 800
DEVICE u32 half2_pack(float low, float high) { u32 d; asm("cvt.rn.f16x2.f32 %0,%1,%2;" : "=r"(d) : "f"(high), "f"(low)); return d; }
DEVICE u32 half2_min(u32 a, u32 b) { u32 d; asm("min.f16x2 %0,%1,%2;" : "=r"(d) : "r"(a), "r"(b)); return d; }
DEVICE u32 half2_max(u32 a, u32 b) { u32 d; asm("max.f16x2 %0,%1,%2;" : "=r"(d) : "r"(a), "r"(b)); return d; }
#else
DEVICE u32 half2_pack(float low, float high) { u32 d; asm("{.reg .f16 l,h; cvt.rn.f16.f32 l,%1; cvt.rn.f16.f32 h,%2; mov.b32 %0,{l,h};}" : "=r"(d) : "f"(low), "f"(high)); return d; }
// before sm_80 there is no minimum of halves: compare, and choose with the comparison's mask
DEVICE u32 half2_less(u32 a, u32 b) { u32 m; asm("set.lt.u32.f16x2 %0,%1,%2;" : "=r"(m) : "r"(a), "r"(b)); return m; }
DEVICE u32 half2_min(u32 a, u32 b) { u32 m = half2_less(a, b); return (a & m) | (b & ~m); }
DEVICE u32 half2_max(u32 a, u32 b) { u32 m = half2_less(a, b); return (b & m) | (a & ~m); }
#endif

// ---- float, two units in the last place
DEVICE float fast_rcp(float x) { float y; asm("rcp.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x)); return y; }
DEVICE float fast_rsqrt(float x) { float y; asm("rsqrt.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x)); return y; }
DEVICE float fast_sqrt(float x) { float y; asm("sqrt.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x)); return y; }
DEVICE float saturate(float x) { return __saturatef(x); }  // NaN becomes 0
DEVICE float nan_value() { return __uint_as_float(0x7fc00000u); }

// ---- global memory. Inputs are read through the read-only path.
DEVICE u32 load8(const void* p) { u32 v; asm("ld.global.nc.u8 %0,[%1];" : "=r"(v) : "l"(p)); return v; }
DEVICE u32 load16(const void* p) { u32 v; asm("ld.global.nc.u16 %0,[%1];" : "=r"(v) : "l"(p)); return v; }
DEVICE u32 load32(const void* p) { u32 v; asm("ld.global.nc.u32 %0,[%1];" : "=r"(v) : "l"(p)); return v; }
DEVICE uint2 load64(const void* p) { uint2 v; asm("ld.global.nc.v2.u32 {%0,%1},[%2];" : "=r"(v.x), "=r"(v.y) : "l"(p)); return v; }
DEVICE uint4 load128(const void* p) { uint4 v; asm("ld.global.nc.v4.u32 {%0,%1,%2,%3},[%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p)); return v; }
DEVICE void store8(void* p, u32 a) { *(u8*)p = (u8)a; }
DEVICE void store16(void* p, u32 a) { *(u16*)p = (u16)a; }
DEVICE void store32(void* p, u32 a) { *(u32*)p = a; }
DEVICE void store64(void* p, u32 a, u32 b) { *(uint2*)p = make_uint2(a, b); }
DEVICE void store128(void* p, u32 a, u32 b, u32 c, u32 d) { *(uint4*)p = make_uint4(a, b, c, d); }
// what another block of the same launch may have stored (after `last_of_blocks`)
DEVICE float load_fresh(const float* p) { float v; asm volatile("ld.global.cg.f32 %0,[%1];" : "=f"(v) : "l"(p) : "memory"); return v; }

// clang-format on

// ---- 16 bytes from global to shared memory that nobody waits for until async_wait<n>: n groups may still be under way
#if __CUDA_ARCH__ >= 800
#define HAS_ASYNC_COPY 1
DEVICE void async_copy16(void *shared, const void *global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((u32)__cvta_generic_to_shared(shared)), "l"(global)
               : "memory");
}
DEVICE void async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> DEVICE void async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
#else
#define HAS_ASYNC_COPY 0
DEVICE void async_copy16(void *shared, const void *global) { *(uint4 *)shared = load128(global); }
DEVICE void async_commit() {}
template <int N> DEVICE void async_wait() {}
#endif

// ---- from sm_90 on a launch may begin while those before it in its stream still work (`Driver.launch`).
// let_next_begin comes first: the next one's blocks take the places that this one's blocks leave. wait_for_former comes
// before anything that the launch before may still write is read. A kernel that reads raw frames only comes to it last:
// whoever waits for a launch has to have waited for those before it. For that, a block that waits is enough: with
// end_after_former the others leave their places free. What such a kernel stores may not be in use by launches before
// it.
#if __CUDA_ARCH__ >= 900
DEVICE void let_next_begin() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
DEVICE void wait_for_former() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
// called, since in its place it makes color_half spill registers
__device__ __noinline__ void end_after_former() {
  if (blockIdx.x == 0) wait_for_former();
}
#else
DEVICE void let_next_begin() {}
DEVICE void wait_for_former() {}
DEVICE void end_after_former() {}
#endif

// ---- memory is not accessed across in_order: what follows does not take registers yet, which sm_72 is short of
#if __CUDA_ARCH__ >= 800
DEVICE void in_order() {}
#else
DEVICE void in_order() { asm volatile("" ::: "memory"); }
#endif

// ---- threads
DEVICE void sync_block() { __syncthreads(); }
DEVICE void sync_warp() { __syncwarp(); }
DEVICE u32 shuffle(u32 value, int lane) { return __shfl_sync(0xffffffffu, value, lane); }
DEVICE u32 shuffle_down(u32 value, int lanes) { return __shfl_down_sync(0xffffffffu, value, lanes); }
DEVICE bool any_in_warp(bool flag) { return __any_sync(0xffffffffu, flag); }
DEVICE bool any_in_block(bool flag) { return __syncthreads_or(flag); }
DEVICE void count_add(u32 *counter, u32 n) { atomicAdd(counter, n); }
// Whether this block is the last one to come here of those that share the counter, which is 0 again then. It sees all
// that the others stored before. Every thread of a block must come here.
DEVICE bool last_of_blocks(u32 *counter, u32 blocks) {
  u32 before = 0;
  __syncthreads();
  if (threadIdx.x == 0) // releases and acquires for the whole block, which has met before and meets again after
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0,[%1],%2;"
                 : "=r"(before)
                 : "l"(counter), "r"(blocks - 1)
                 : "memory");
  return __syncthreads_or(threadIdx.x == 0 && before == blocks - 1);
}

// ---- tensor cores: out += a b, of 16x16 and 16x8 halves, in float. Lane = 4 g + t holds pairs of halves: of a, rows g
// and g + 8 at columns 2t, 2t+1 (a[0], a[1]) and 2t+8, 2t+9 (a[2], a[3]); of b, column g at those same rows (b0, b1);
// of out, rows g (out[0], out[1]) and g + 8 (out[2], out[3]) at columns 2t, 2t+1. Every lane of the warp must come
// here.
#if __CUDA_ARCH__ >= 800
#define HAS_TENSOR 1
DEVICE void tensor_add(float (&out)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(out[0]), "+f"(out[1]), "+f"(out[2]), "+f"(out[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#else
#define HAS_TENSOR 0
#endif
#endif // POLAR_HOST

// ---- what both have: a 16-bit lane of a word behind the exponent of 0.5, without a conversion: 0.5 + lane / 65536
template <int HIGH> DEVICE float lane_as_float(u32 lanes) {
  return as_float(permute(lanes, 0x3F000000u, HIGH ? 0x7324 : 0x7104));
}
#endif
