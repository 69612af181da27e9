// Mono, full resolution, bilinear or gradient, 8 bit in and out: intensity, DoLP, AoLP and preview. By the gradient 1.7
// times as fast as `tile` (7.7 instead of 13.5 us, H200); floats, which memory bounds, were 1.06 times as fast.
//
// A thread takes 16 pixels along x and ROWS along y. With C the pixel's own sample, H, V and D the restored values of
// the angles of its row, its column and the diagonals: S0/2 is their mean, and (S1, S2) is (C - D, H - V), up to signs
// and order that depend on the place in the 2x2 tile only, since diagonal neighbors are orthogonal. Even and odd
// columns are kept apart, so that both lanes of a half2 lie at the same place. Bilinear, C - D and H - V are exact in
// quarters of a level. The gradient adds the pixel's detail to H, V and D, each limited to full scale.
#include "mono_full_lines.cuh"
#include "malvar.cuh"

constexpr bool IS_GRADIENT = DEMOSAIC == METHOD_GRADIENT;
// Blocks of a multiprocessor, for which registers must suffice.
#if __CUDA_ARCH__ >= 900
constexpr int BLOCKS = (IS_GRADIENT || OUT_PREVIEW ? 768 : 1024) / THREADS; // 80, 64 registers a thread
#else
constexpr int BLOCKS = RESIDENT / THREADS;
#endif
static_assert(ROWS % 2 == 0, "the parity of a row must be known at compile time");
static_assert(!COLOR && !HALF_RESOLUTION && (DEMOSAIC == METHOD_BILINEAR || IS_GRADIENT) && RAW_FORMAT == RAW_U8 &&
                  HALF_PRECISION && !CALIBRATED,
              "see KERNELS in polar_pipeline/backends/cuda/polarization.py");
static_assert(!WANT_ANGLES && !OUT_STOKES && !OUT_SUMS && !OUT_S0 && OUT_INTENSITY < 2 && OUT_DOLP < 2 && OUT_AOLP < 2,
              "see KERNELS in polar_pipeline/backends/cuda/polarization.py");

constexpr int STAGE_BYTES = OUT_PREVIEW ? sizeof(StagedColors) : 0; // of a warp
static_assert(THREADS / 32 * STAGE_BYTES <= SHARED_BYTES, "the schedule reserves too little shared memory");

// Two pixels at one place of the tile. sum: of four angles, FOUR_FULL at full scale; s1, s2 in the same unit.
struct Stokes {
  Pair sum, s1, s2;
};
constexpr double FOUR_FULL = IS_GRADIENT ? 4 : 4 * 4 * 255 * SUBNORMAL_UNIT;
// What surrounds two pixels, as sums: of the row's two neighbors, the column's two, the four diagonal ones, and the
// four of the same angle.
struct Around {
  Pair row, column, diagonal, axial;
};
// R, J: the place in the tile
template <int R, int J> DEVICE Stokes stokes(Pair own, const Around &n) {
  constexpr int angle = angle_at(R, J), along = angle_at(R, 1 - J);
  constexpr bool straight = angle % 2 == 0; // 0 or 90: p is S1
  Pair p, q, sum;                           // I(angle) - I(angle + 90); the row's angle likewise
  if (IS_GRADIENT) {
    constexpr double one = 1 / (255 * SUBNORMAL_UNIT); // beyond half's range
    const Pair detail = fma(own, splat(BETA * one), mul(n.axial, splat(-BETA / 4 * one)));
    const Pair h = fma_sat(n.row, splat(one / 2), detail), v = fma_sat(n.column, splat(one / 2), detail);
    const Pair d = fma_sat(n.diagonal, splat(one / 4), detail), half = mul(own, splat(one / 2));
    p = fma(half, splat(angle < 2 ? 2 : -2), angle < 2 ? negate(d) : d);
    q = along < 2 ? sub(h, v) : sub(v, h);
    sum = fma(half, splat(2), add(add(h, v), d));
  } else {
    p = fma(own, splat(angle < 2 ? 4 : -4), angle < 2 ? mul(n.diagonal, splat(-1)) : n.diagonal);
    q = mul(sub(n.row, n.column), splat(along < 2 ? 2 : -2));
    sum = fma(add(n.row, n.column), splat(2), fma(own, splat(4), n.diagonal));
  }
  return Stokes{sum, straight ? p : q, straight ? q : p};
}

// What two pixels become, in the low byte of each lane.
struct Encoded {
  Pair mean, degree, turns, rgb[3];
};
DEVICE Encoded encode(const Stokes &v) {
  Encoded out;
  float tangent[2], degree[2];
#pragma unroll
  for (int k = 0; k < 2; k++) {
    const float s1 = k ? high(v.s1) : low(v.s1), s2 = k ? high(v.s2) : low(v.s2), sum = k ? high(v.sum) : low(v.sum);
    const float length = polarized(s1, s2, 1e-30f);
    tangent[k] = folded_tangent(s1, s2, length);
    degree[k] = degree_of(length, fmaf(sum, 0.5f, 1e-12f));
  }
  const Pair value = IS_GRADIENT ? v.sum : mul(v.sum, splat(32768));
  constexpr Pair scale = splat(255 / (IS_GRADIENT ? FOUR_FULL : 32768 * FOUR_FULL));
  const Pair saturation = pair(degree[0], degree[1]);
  out.mean = fma(value, scale, splat(1024));
  out.degree = unit_bytes(saturation);
  if (!OUT_PREVIEW) {
    out.turns = turns_256(pair(tangent[0], tangent[1]), v.s1);
    return out;
  }
  const Pair sign = (v.s1 & 0x80008000u) | splat(1), folded = folded_256(pair(tangent[0], tangent[1]));
  out.turns = unfolded_256(folded, sign);
  preview_pairs(mul(folded, splat(6.0 / 256)), sign, negate(mul(value, saturation)), value, out.rgb);
#pragma unroll
  for (int c = 0; c < 3; c++) out.rgb[c] = fma(out.rgb[c], scale, splat(1024));
  return out;
}

// Sums over a row's neighbors, of 16 pixels. above, under: next to the row; above2, under2: the lines beyond these.
struct RowSums {
  Around even[4], odd[4];
};
DEVICE void surround(const Columns &above2, const Columns &above, const Columns &own, const Columns &under,
                     const Columns &under2, RowSums &out) {
  // own row, and rows above and below, one to the left
  Pair even[5], odd[5], before[5], after[5], before2[5], after2[5];
#pragma unroll
  for (int k = 0; k < 5; k++) { // before: the odd pixel to the left of each even one; after: the even one to the left
    before[k] = straddle(k ? own.odd[k - 1] : own.odd_left, k < 4 ? own.odd[k] : own.odd_right);
    after[k] = straddle(k ? own.even[k - 1] : own.even_left, k < 4 ? own.even[k] : own.even_right);
    even[k] = k < 4 ? add(above.even[k], under.even[k]) : add(above.even_right, under.even_right);
    odd[k] = k ? add(above.odd[k - 1], under.odd[k - 1]) : add(above.odd_left, under.odd_left);
  }
#pragma unroll
  for (int k = 0; k < 4; k++) {
    before2[k] = straddle(odd[k], odd[k + 1]);
    after2[k] = straddle(even[k], even[k + 1]);
    out.even[k].row = add(before[k], own.odd[k]);
    out.odd[k].row = add(own.even[k], after[k + 1]);
    out.even[k].column = even[k];
    out.odd[k].column = odd[k + 1];
    out.even[k].diagonal = add(before2[k], odd[k + 1]);
    out.odd[k].diagonal = add(even[k], after2[k]);
    if (IS_GRADIENT) {
      out.even[k].axial = add(add(after[k], after[k + 1]), add(above2.even[k], under2.even[k]));
      out.odd[k].axial = add(add(before[k], before[k + 1]), add(above2.odd[k], under2.odd[k]));
    }
  }
}

// The bytes of a row of 16 pixels.
struct RowBytes {
  u32 mean[4], degree[4], turns[4];
  u32 low[4]; // bit 7 of a byte: dark
};
// Computes and stages four pixels: two even ones and the odd ones beside them.
DEVICE void make_four(const Stokes &e, const Stokes &o, Pair threshold, int k, int lane, StagedColors &preview,
                      RowBytes &row) {
  const Encoded a = encode(e), b = encode(o);
  row.mean[k] = permute(a.mean, b.mean, 0x6240);
  row.degree[k] = permute(a.degree, b.degree, 0x6240);
  row.turns[k] = permute(a.turns, b.turns, 0x6240);
  if (WANT_DARK) row.low[k] = permute(sub(e.sum, threshold), sub(o.sum, threshold), 0x7351);
  if (OUT_PREVIEW) {
    u32 words[3];
    interleave(permute(a.rgb[0], b.rgb[0], 0x6240), permute(a.rgb[1], b.rgb[1], 0x6240),
               permute(a.rgb[2], b.rgb[2], 0x6240), words);
#pragma unroll
    for (int j = 0; j < 3; j++) preview[12 * lane + 3 * k + j] = words[j];
  }
}

// Takes what invalid pixels do not have: this is rare. invalid: bit 7 of their bytes.
DEVICE void drop_invalid(const u32 (&invalid)[4], int lane, StagedColors &preview, RowBytes &row) {
#pragma unroll
  for (int k = 0; k < 4; k++) {
    const u32 keep = ~((invalid[k] >> 7) * 255u);
    row.degree[k] &= keep;
    row.turns[k] &= keep;
    for (int i = 0; i < (OUT_PREVIEW ? 4 : 0); i++) {
      if (!(invalid[k] >> (8 * i + 7) & 1)) continue;
      for (int c = 0; c < 3; c++) ((u8 *)preview)[48 * lane + 12 * k + 3 * i + c] = (u8)(row.mean[k] >> (8 * i));
    }
  }
}

// index: of the thread's first pixel in the frame, or NOWHERE
DEVICE void store_row(const FrameArguments &frame, const RowBytes &row, const StagedColors &preview, int lane,
                      u32 index) {
  const size_t base = (size_t)blockIdx.z * height_of(frame) * width_of(frame); // of this frame
  auto store_bytes = [&](int output, const u32(&w)[4]) {
    if (index != NOWHERE) store128((u8 *)frame.out[output] + base + index, w[0], w[1], w[2], w[3]);
  };
  if (OUT_INTENSITY == 1) store_bytes(INTENSITY, row.mean);
  if (OUT_DOLP == 1) store_bytes(DOLP, row.degree);
  if (OUT_AOLP == 1) store_bytes(AOLP, row.turns);
  if (!OUT_PREVIEW) return;
  sync_warp();
  store_colors_staged((u8 *)frame.out[PREVIEW] + 3 * base, preview, lane, index);
  sync_warp();
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) mono_full(const FrameArguments frame) {
  SHARED_MEMORY(memory);
  const int across = width_of(frame) / THREAD_PIXELS, lane = threadIdx.x % 32;
  StagedColors &preview = *(StagedColors *)(memory + threadIdx.x / 32 * STAGE_BYTES);
  const u32 id = block_of_frame(frame, blockIdx.x) * THREADS + threadIdx.x, strip = id / across;
  const int y0 = strip * ROWS, x = (id - strip * across) * THREAD_PIXELS;
  Line lines[ROWS + 2 * REACH];
  load_lines<ROWS>(frame, y0 < height_of(frame) ? y0 : 0, x, lines);
  u32 saturated = 0;
#pragma unroll
  for (int k = REACH - 1; k <= ROWS + REACH; k++) {
#pragma unroll
    for (int j = 0; j < 4; j++) saturated |= has_255(lines[k].w[j]);
    saturated |= has_255(lines[k].ends);
  }
  const float darkest = frame.min_intensity * (float)(FOUR_FULL / 2); // as `sum`
  const Pair threshold = pair(darkest, darkest);
  InvalidCount count = {0, 0};
  Columns window[5]; // from two lines above the row on; bilinear, the outermost two are not used
#pragma unroll
  for (int k = 0; k < 4; k++) window[k] = k >= 2 - REACH && k < 2 + REACH ? columns(lines[k - 2 + REACH]) : Columns();
  u32 index = y0 * width_of(frame) + x;
#pragma unroll
  for (int i = 0; i < ROWS; i++, index += width_of(frame)) {
    window[2 + REACH] = columns(lines[i + 2 * REACH]);
    RowSums sums;
    surround(window[0], window[1], window[2], window[3], window[4], sums);
    RowBytes row;
    u32 dark = 0;
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const Stokes e =
          i % 2 ? stokes<1, 0>(window[2].even[k], sums.even[k]) : stokes<0, 0>(window[2].even[k], sums.even[k]);
      const Stokes o =
          i % 2 ? stokes<1, 1>(window[2].odd[k], sums.odd[k]) : stokes<0, 1>(window[2].odd[k], sums.odd[k]);
      make_four(e, o, threshold, k, lane, preview, row);
      if (WANT_DARK) dark |= row.low[k];
    }
    const bool inside = y0 + i < height_of(frame);
    if (((saturated | dark) & BYTES_255) && inside) { // rare: find out where
      u32 full[6], invalid[4];
      saturated_bytes(frame, y0 + i - 1, y0 + i + 1, x, full);
#pragma unroll
      for (int k = 0; k < 4; k++) {
        const u32 around =
            full[k + 1] | permute(full[k], full[k + 1], 0x6543) | permute(full[k + 1], full[k + 2], 0x4321);
        const u32 only_dark = WANT_DARK ? row.low[k] & BYTES_255 & ~around : 0;
        count.saturated += __popc(around);
        count.dark += __popc(only_dark);
        invalid[k] = around | only_dark;
      }
      drop_invalid(invalid, lane, preview, row);
    }
    store_row(frame, row, preview, lane, inside ? index : NOWHERE);
#pragma unroll
    for (int k = 0; k < 4; k++) window[k] = window[k + 1];
  }
  count_invalid(frame, count);
}
