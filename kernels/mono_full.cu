// Mono, full resolution, bilinear, 8 bit in and out: intensity, DoLP and AoLP.
//
// A thread takes 16 pixels along x and ROWS along y. With C the pixel's own sample, H, V and D the bilinear values of
// the angles of its row, its column and the diagonals: S0/2 is their mean, and (S1, S2) is (C - D, H - V), up to signs
// and order that depend on the place in the 2x2 tile only, since diagonal neighbours are orthogonal. Even and odd
// columns are kept apart, so that both lanes of a half2 lie at the same place. In quarters of a level, C - D and H - V
// are exact in half.
#include "mono_lines.cuh"

#ifndef THREADS
#define THREADS 128
#endif
#ifndef ROWS
#define ROWS 2 // rows a thread, even
#endif
#ifndef BLOCKS // of a multiprocessor, for which registers must suffice
#if __CUDA_ARCH__ >= 900
#define BLOCKS (1024 / THREADS) // 64 registers a thread; older assemblers spill there
#else
#define BLOCKS (RESIDENT / THREADS)
#endif
#endif
static_assert(ROWS % 2 == 0, "the parity of a row must be known at compile time");
static_assert(!COLOR && !HALF_RESOLUTION && DEMOSAIC == METHOD_BILINEAR && RAW_FORMAT == RAW_U8 && HALF_PRECISION,
              "see supports() in specs.py");
static_assert(OUT_INTENSITY < 2 && OUT_DOLP < 2 && OUT_AOLP < 2 && !WANT_ANGLES && !OUT_STOKES && !OUT_PREVIEW &&
                  !OUT_SUMS && !OUT_S0,
              "uint8 intensity, dolp and aolp only");

// The even and odd columns of a line, two a word, and the neighbours outside, as subnormal halves.
struct Columns {
  Pair even[4], odd[4], left, right;
};
DEVICE Columns columns(const Line &line) {
  Columns c;
#pragma unroll
  for (int k = 0; k < 4; k++) {
    c.even[k] = permute(line.w[k], 0u, 0x4240);
    c.odd[k] = permute(line.w[k], 0u, 0x4341);
  }
  c.left = line.left << 16;
  c.right = line.right;
  return c;
}

// Two pixels at one place (R, J) of the tile, in quarters of a level times SUBNORMAL_UNIT. sum: of four angles.
struct Stokes {
  Pair sum, s1, s2;
};
template <int R, int J> DEVICE Stokes stokes(Pair own, Pair row, Pair column, Pair diagonal) { // neighbours as sums
  constexpr int angle = angle_at(R, J), along = angle_at(R, 1 - J);
  const Pair p =
      fma(own, splat(angle < 2 ? 4 : -4), angle < 2 ? mul(diagonal, splat(-1)) : diagonal); // I(angle) - I(angle + 90)
  const Pair q = mul(sub(row, column), splat(along < 2 ? 2 : -2));                          // the row's angle likewise
  constexpr bool straight = angle % 2 == 0;                                                 // 0 or 90: p is S1
  return Stokes{fma(add(row, column), splat(2), fma(own, splat(4), diagonal)), straight ? p : q, straight ? q : p};
}

struct Bytes {
  u32 mean, degree, turns;
}; // of two pixels, in the low byte of each lane
DEVICE Bytes encode(const Stokes &v) {
  const Polar l = polar(low(v.s1), low(v.s2), fmaf(low(v.sum), 0.5f, 1e-12f)),
              h = polar(high(v.s1), high(v.s2), fmaf(high(v.sum), 0.5f, 1e-12f));
  Bytes out;
  out.mean = fma(mul(v.sum, splat(32768)), splat(1 / (16 * 32768 * SUBNORMAL_UNIT)), splat(1024));
  out.degree = fma(pair(l.degree, h.degree), splat(255), splat(1024));
  out.turns = turns_256(pair(l.tangent, h.tangent), (v.s1 & 0x80008000u) | splat(1));
  return out;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) mono_full(const FrameArguments frame) {
  launch_dependents();
  const int across = width_of(frame) / THREAD_PIXELS;
  const u32 id = blockIdx.x * THREADS + threadIdx.x, strip = id / across;
  const int y0 = strip * ROWS, x = (id - strip * across) * THREAD_PIXELS;
  Line lines[ROWS + 2];
  load_lines<ROWS>(frame, y0 < height_of(frame) ? y0 : 0, x, lines);
  u32 saturated = 0;
#pragma unroll
  for (int k = 0; k < ROWS + 2; k++) {
#pragma unroll
    for (int j = 0; j < 4; j++) saturated |= has_255(lines[k].w[j]);
    saturated |= has_255(lines[k].left) | has_255(lines[k].right);
  }
  const float darkest = frame.min_intensity * (float)(8 * 255 * SUBNORMAL_UNIT); // as `sum`
  const Pair threshold = pair(darkest, darkest);
  InvalidCount count = {0, 0};
  Columns above = columns(lines[0]), own = columns(lines[1]);
  const size_t base = (size_t)blockIdx.z * height_of(frame) * width_of(frame); // of this frame
  u32 index = y0 * width_of(frame) + x;
#pragma unroll
  for (int i = 0; i < ROWS; i++, index += width_of(frame)) {
    const Columns under = columns(lines[i + 2]);
    Pair even[4], odd[4]; // sums of the rows above and below
#pragma unroll
    for (int k = 0; k < 4; k++) {
      even[k] = add(above.even[k], under.even[k]);
      odd[k] = add(above.odd[k], under.odd[k]);
    }
    const Pair left = add(above.left, under.left), right = add(above.right, under.right);
    u32 mean[4], degree[4], turns[4], low[4], dark = 0;
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const Pair before = straddle(k ? own.odd[k - 1] : own.left, own.odd[k]),
                 before2 = straddle(k ? odd[k - 1] : left, odd[k]);
      const Pair after = straddle(own.even[k], k < 3 ? own.even[k + 1] : own.right),
                 after2 = straddle(even[k], k < 3 ? even[k + 1] : right);
      const Pair row_even = add(before, own.odd[k]), row_odd = add(own.even[k], after),
                 across_even = add(before2, odd[k]), across_odd = add(even[k], after2);
      const Stokes e = i % 2 ? stokes<1, 0>(own.even[k], row_even, even[k], across_even)
                             : stokes<0, 0>(own.even[k], row_even, even[k], across_even);
      const Stokes o = i % 2 ? stokes<1, 1>(own.odd[k], row_odd, odd[k], across_odd)
                             : stokes<0, 1>(own.odd[k], row_odd, odd[k], across_odd);
      const Bytes be = encode(e), bo = encode(o);
      mean[k] = permute(be.mean, bo.mean, 0x6240);
      degree[k] = permute(be.degree, bo.degree, 0x6240);
      turns[k] = permute(be.turns, bo.turns, 0x6240);
      if (WANT_DARK) {
        low[k] = permute(sub(e.sum, threshold), sub(o.sum, threshold), 0x7351); // bit 7 of a byte: dark
        dark |= low[k];
      }
    }
    const bool inside = y0 + i < height_of(frame);
    if (((saturated | dark) & BYTES_255) && inside) { // rare: find out where
      u32 full[6];
      saturated_bytes(frame, y0 + i - 1, y0 + i + 1, x, full);
#pragma unroll
      for (int k = 0; k < 4; k++) {
        const u32 around =
            full[k + 1] | permute(full[k], full[k + 1], 0x6543) | permute(full[k + 1], full[k + 2], 0x4321);
        const u32 only_dark = WANT_DARK ? low[k] & BYTES_255 & ~around : 0;
        count.saturated += __popc(around);
        count.dark += __popc(only_dark);
        const u32 keep = ~(((around | only_dark) >> 7) * 255u);
        degree[k] &= keep;
        turns[k] &= keep;
      }
    }
    if (inside) {
      if (OUT_INTENSITY) store128((u8 *)frame.out[INTENSITY] + base + index, mean[0], mean[1], mean[2], mean[3]);
      if (OUT_DOLP) store128((u8 *)frame.out[DOLP] + base + index, degree[0], degree[1], degree[2], degree[3]);
      if (OUT_AOLP) store128((u8 *)frame.out[AOLP] + base + index, turns[0], turns[1], turns[2], turns[3]);
    }
    above = own;
    own = under;
  }
  count_invalid(frame, count);
  grid_dependency_wait();
}
