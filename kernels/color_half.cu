// Colour, half resolution, each angle at its own site: Malvar-He-Cutler on four Bayer lattices, with intensity, DoLP,
// AoLP and preview in the same launch; 8 bit in and out.
//
// A word of the raw mosaic holds two sites of the lattice; the two bytes of a site are two angles of one colour: the
// lanes of a half2, so both angles cost one instruction stream. Two lines of the lattice need six lines of raw of one
// row parity. Where they live is the schedule's choice: in registers (a warp per strip of 128 sites, lines rotating by
// compile-time index), or in shared memory as a ring of line pointers that a block moves down, with the next lines in
// flight. Angle images of a warp are staged in shared memory and leave in contiguous pieces.
#include "products.cuh"
#include "raw.cuh"
#include "malvar.cuh"

#define WINDOW_REGISTERS 0
#define WINDOW_RING 1
#ifndef WINDOW
#define WINDOW WINDOW_REGISTERS
#endif
#ifndef THREADS
#define THREADS 64
#endif
#ifndef ROWS
#define ROWS 2 // output rows a thread, even
#endif
#ifndef LINES
#define LINES 16 // raw lines in the ring: 12 in use, the others in flight
#endif
// Products need all four angles of a site, so both row parities in one thread; angle images alone do not.
#define FUSED (OUT_INTENSITY || OUT_DOLP || OUT_AOLP || OUT_PREVIEW || OUT_SUMS || OUT_S0)
#define PARITIES (FUSED || WINDOW == WINDOW_RING ? 2 : 1)
#ifndef BLOCKS // per multiprocessor, that registers must leave room for
#if WINDOW == WINDOW_RING || __CUDA_ARCH__ < 900 || ROWS > 4 || OUT_SUMS
#define BLOCKS (RESIDENT / THREADS)
#else
#define BLOCKS ((PARITIES == 2 ? 768 : 1024) / THREADS)
#endif
#endif
static_assert(COLOR && HALF_RESOLUTION && !CO_SITED && DEBAYER == LATTICE_MHC && RAW_FORMAT == RAW_U8 && HALF_PRECISION,
              "see supports() in schedule.py");
static_assert(OUT_INTENSITY < 2 && OUT_ANGLE_0 < 2 && OUT_ANGLE_45 < 2 && OUT_ANGLE_90 < 2 && OUT_ANGLE_135 < 2 &&
                  OUT_DOLP < 2 && OUT_AOLP < 2,
              "uint8 outputs only");
static_assert(!OUT_STOKES && OUT_SUMS % 3 == 0 && OUT_S0 % 3 == 0, "no Stokes vector; what SSIM compares as half only");
static_assert(ROWS % 2 == 0, "two lines of the lattice at a time");
static_assert(LINES % 4 == 0 && LINES >= 16, "twelve lines in use and four in flight");

constexpr int SITES = 4;                // of a thread along x
constexpr int SEGMENT = 32 * 3 * SITES; // bytes of a warp's row of an RGB image
constexpr int WARPS = THREADS / 32;
constexpr int STRIP = THREADS * SITES; // sites of a block along x, in the ring
constexpr int PITCH = 2 * STRIP + 32;  // bytes of a line in the ring, 16 on either side
constexpr int FOURS = LINES / 4;

struct Shared {
  alignas(8) u32 stage[WARPS][2][2][SEGMENT / 4]; // per warp: angle, row
#if WINDOW == WINDOW_RING
  alignas(16) u8 ring[LINES][PITCH];
#endif
};
#ifdef SHARED_BYTES
static_assert(sizeof(Shared) <= SHARED_BYTES, "the schedule reserves too little shared memory");
#endif

// ------------------------------------------------------------------------------------------------------------- reading

// Samples here are bytes as subnormal halves.
struct ByteScale {
  static constexpr double PER_SAMPLE = 1.0 / 255 / SUBNORMAL_UNIT;
};

struct Line {
  u32 w[4];
}; // sites -2 -1, 0 1, 2 3, 4 5

DEVICE Line load_line(const u8 *p, bool first, bool last) {
  const uint2 w = load64(p);
  return Line{{first ? 0u : load32(p - 4), w.x, w.y, last ? 0u : load32(p + 8)}};
}
// beyond the border the lattice is its own reflection: sites -2 -1 are 2 1
DEVICE void unpack(Line line, bool first, bool last, Sites &v) {
  if (first) line.w[0] = permute(line.w[1], line.w[2], 0x3254);
  if (last) line.w[3] = permute(line.w[1], line.w[2], 0x3254);
#pragma unroll
  for (int k = 0; k < 4; k++) {
    v[2 * k] = subnormal_bytes<0>(line.w[k]);
    v[2 * k + 1] = subnormal_bytes<1>(line.w[k]);
  }
}

// ------------------------------------------------------------------------------------------------------------- storing

// the bytes of both angles' images
template <int LINE> DEVICE void pack(const Colours &v, u32 (&low_image)[3], u32 (&high_image)[3]) {
#pragma unroll
  for (int k = 0; k < 3; k++) {
    u32 m[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const int n = 4 * k + j;
      m[j] = is_sample(0, LINE, n / 3, n % 3) ? v[n / 3][n % 3]
                                              : fma(v[n / 3][n % 3], splat(255), splat(1024)); // low bytes
    }
    const u32 ab = permute(m[0], m[1], 0x6240), cd = permute(m[2], m[3], 0x6240);
    low_image[k] = permute(ab, cd, 0x5410);
    high_image[k] = permute(ab, cd, 0x7632);
  }
}

// Where a lane's three pieces of 8 bytes of two staged rows go, in any RGB image.
struct Pieces {
  u32 to[3];
  bool inside[3];
};
DEVICE void store_staged(const u32 *stage, int lane, u8 *image, const Pieces &p) {
#pragma unroll
  for (int i = 0; i < 3; i++) {
    const uint2 w = *(const uint2 *)(stage + 2 * (lane + 32 * i));
    u8 *to = image + p.to[i];
    if (p.inside[i]) store64(to, w.x, w.y);
  }
}
DEVICE void stage_row(u32 *stage, int lane, const u32 (&w)[3]) {
#pragma unroll
  for (int k = 0; k < 3; k++) stage[3 * lane + k] = w[k];
}

// A thread's place.
struct ThreadPosition {
  int lane, y, x; // first output row; first site
  int rows;       // output rows of the picture
  bool inside;    // whether the thread's sites are in the picture
  u32 pixel;      // the warp's first pixel in its frame's images
  Pieces pieces;  // of the warp's two rows
};
// whether row r of the place is in the picture; always, where the rows of a literal height come out even
#ifdef WIDTH
constexpr bool EVEN_OUT = HEIGHT / 2 % ROWS == 0;
#else
constexpr bool EVEN_OUT = false;
#endif
DEVICE bool has_row(const ThreadPosition &at, int r) { return EVEN_OUT || at.y + r < at.rows; }

DEVICE size_t frame_pixels(const FrameArguments &frame) {
  return (size_t)blockIdx.z * (out_height(frame) * out_width(frame));
}

DEVICE ThreadPosition thread_position(const FrameArguments &frame, int y, int warp_x) {
  const int width = out_width(frame), lane = threadIdx.x % 32, bytes = min(SEGMENT, (width - warp_x) * 3);
  ThreadPosition at;
  at.lane = lane;
  at.y = y;
  at.x = min(warp_x + lane * SITES, width - SITES);
  at.rows = out_height(frame);
  at.inside = warp_x + lane * SITES < width;
  at.pixel = y * width + warp_x;
#pragma unroll
  for (int i = 0; i < 3; i++) {
    const int j = lane + 32 * i, row = j >= SEGMENT / 8, byte = 8 * (j - row * (SEGMENT / 8));
    at.pieces.to[i] = 3 * (at.pixel + row * width) + byte;
    at.pieces.inside[i] = byte < bytes && has_row(at, row);
  }
  return at;
}
// two rows further down
DEVICE void move_down(const FrameArguments &frame, ThreadPosition &at) {
  const int width = out_width(frame);
  at.y += 2;
  at.pixel += 2 * width;
#pragma unroll
  for (int i = 0; i < 3; i++) {
    at.pieces.to[i] += 6 * width;
    if (!EVEN_OUT && !has_row(at, at.lane + 32 * i >= SEGMENT / 8)) at.pieces.inside[i] = false;
  }
}

// two lines of both angles of a row parity
template <int PARITY>
DEVICE void store_angles(const FrameArguments &frame, const ThreadPosition &at, u32 (&stage)[2][2][SEGMENT / 4],
                         const Colours &even, const Colours &odd) {
  constexpr int low_image = ANGLE_0 + angle_at(PARITY, 0), high_image = ANGLE_0 + angle_at(PARITY, 1);
  if (!out_type(low_image) && !out_type(high_image)) return;
  u32 l[3], h[3];
  pack<0>(even, l, h);
  stage_row(stage[0][0], at.lane, l);
  stage_row(stage[1][0], at.lane, h);
  pack<1>(odd, l, h);
  stage_row(stage[0][1], at.lane, l);
  stage_row(stage[1][1], at.lane, h);
  sync_warp();
  const size_t base = 3 * frame_pixels(frame);
  if (out_type(low_image)) store_staged(stage[0][0], at.lane, (u8 *)frame.out[low_image] + base, at.pieces);
  if (out_type(high_image)) store_staged(stage[1][0], at.lane, (u8 *)frame.out[high_image] + base, at.pieces);
  sync_warp();
}

// Rare: bytes of ones for those of four sites of which a sample is saturated. site: the first sample, read again.
DEVICE u32 saturated_sites(const FrameArguments &frame, const u8 *site) {
  const uint2 upper = load64(site), lower = load64(site + step_of(frame));
  const u32 a = all_255(upper.x) | all_255(lower.x), b = all_255(upper.y) | all_255(lower.y); // two sites each
  return (permute(a | a << 8, b | b << 8, 0x7531) >> 7) * 255u;
}

#if FUSED
// Own samples come to [0, 1/2], as far as one multiplication reaches; the weights below make up for it.
#define RESTORED(line, site, channel, weight) (is_sample(0, line, site, channel) ? splat(2 * (weight)) : splat(weight))
template <int LINE> DEVICE void scale(Colours &v) {
#pragma unroll
  for (int i = 0; i < SITES; i++)
#pragma unroll
    for (int c = 0; c < 3; c++)
      if (is_sample(0, LINE, i, c)) v[i][c] = mul(v[i][c], splat(0.5 * ByteScale::PER_SAMPLE));
}

// What the preview needs of four sites.
struct Hsv {
  float tangent[SITES], s1[SITES], saturation[SITES], value[SITES];
};

// What SSIM compares, of four sites as half.
struct Compared {
  Pair sums[2][2], s0[2];
};

// Intensity, DoLP and AoLP of four sites of a line; returns the smallest sum of the four angles' luma. even, odd: by
// raw row parity.
template <int LINE>
DEVICE float polarization(const Colours &even, const Colours &odd, u32 (&intensity)[3], u32 &degree, u32 &turns,
                          Hsv &hsv, Compared &compared) {
  u32 level[2][3], d[2], t[2];
  float darkest = 4;
#pragma unroll
  for (int k = 0; k < 2; k++) {
    const Colours &e = even, &o = odd;
    const int a = 2 * k, b = 2 * k + 1;
    Pair sum[3], difference[2][3]; // of all four angles, sites as lanes; of orthogonal angles, by site
#pragma unroll
    for (int c = 0; c < 3; c++) {
      const Pair sa = add(e[a][c], o[a][c]), sb = add(e[b][c], o[b][c]);
      sum[c] = add(lows(sa, sb), highs(sa, sb));
      level[k][c] = fma(sum[c], join(RESTORED(LINE, 0, c, 255 / 4.0), RESTORED(LINE, 1, c, 255 / 4.0)), splat(1024));
      // differences before luma and before any rounding of sums: they are small, and lose least in half
      difference[0][c] = sub(e[a][c], straddle(o[a][c], o[a][c]));
      difference[1][c] = sub(e[b][c], straddle(o[b][c], o[b][c]));
    }
#define WEIGHT(i, c) RESTORED(LINE, i, c, c == 1 ? LUMA_GREEN : LUMA_RED)
#define HALF_WEIGHT(i, c) RESTORED(LINE, i, c, (c == 1 ? LUMA_GREEN : LUMA_RED) / 2)
#define WEIGHTS(c) join(WEIGHT(0, c), WEIGHT(1, c))
    const Pair total = fma(sum[1], WEIGHTS(1), fma(sum[0], WEIGHTS(0), mul(sum[2], WEIGHTS(2))));
    darkest = fminf(darkest, fminf(low(total), high(total)));
    if (OUT_S0) compared.s0[k] = mul(total, splat(0.25));
    if (OUT_SUMS) {
      Pair half_sum[2]; // by site; lanes as those of `difference`
#pragma unroll
      for (int i = 0; i < 2; i++) {
        Pair both[3];
#pragma unroll
        for (int c = 0; c < 3; c++) both[c] = add(e[2 * k + i][c], straddle(o[2 * k + i][c], o[2 * k + i][c]));
        half_sum[i] = fma(both[1], HALF_WEIGHT(i, 1), fma(both[0], HALF_WEIGHT(i, 0), mul(both[2], HALF_WEIGHT(i, 2))));
      }
      const Pair l = lows(half_sum[0], half_sum[1]), h = highs(half_sum[0], half_sum[1]);
      compared.sums[0][k] = angle_at(0, 0) % 2 == 0 ? l : h; // 0 and 90 degrees
      compared.sums[1][k] = angle_at(0, 0) % 2 == 0 ? h : l;
    }
    float tangent[2], dolp[2], s1[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const Pair p =
          fma(difference[i][1], WEIGHT(i, 1), fma(difference[i][0], WEIGHT(i, 0), mul(difference[i][2], WEIGHT(i, 2))));
      // the low lane is I(00) - I(11), the high one I(01) - I(10)
      const float x = angle_at(0, 0) % 2 == 0 ? low(p) : high(p), y = angle_at(0, 0) % 2 == 0 ? high(p) : low(p);
      s1[i] = (angle_at(0, 0) == 0 || angle_at(0, 1) == 0) ? x : -x;
      const float s2 = (angle_at(0, 0) == 1 || angle_at(0, 1) == 1) ? y : -y;
      const float length = fast_sqrt(fmaf(x, x, fmaf(y, y, 1e-30f)));
      tangent[i] = s2 * fast_rcp(length + fabsf(x));
      dolp[i] = saturate(2 * length * fast_rcp(fmaxf(i ? high(total) : low(total), 1e-5f)));
      if (OUT_PREVIEW) {
        hsv.tangent[2 * k + i] = tangent[i];
        hsv.s1[2 * k + i] = s1[i];
        hsv.saturation[2 * k + i] = dolp[i];
        hsv.value[2 * k + i] = (i ? high(total) : low(total)) * (FULL / 4);
      }
    }
    d[k] = fma(pair(dolp[0], dolp[1]), splat(255), splat(1024));
    t[k] = turns_256(pair(tangent[0], tangent[1]), (pair(s1[0], s1[1]) & 0x80008000u) | splat(1));
  }
  degree = low_bytes(d[0], d[1]);
  turns = low_bytes(t[0], t[1]);
  interleave(low_bytes(level[0][0], level[1][0]), low_bytes(level[0][1], level[1][1]),
             low_bytes(level[0][2], level[1][2]), intensity);
  return darkest;
}

// Rare: bytes of ones for those of four sites that are dark.
template <int LINE> DEVICE u32 dark_sites(const FrameArguments &frame, const Colours &even, const Colours &odd) {
  u32 dark = 0;
#pragma unroll
  for (int i = 0; i < SITES; i++) {
    Pair sum[3];
    for (int c = 0; c < 3; c++) sum[c] = add(even[i][c], odd[i][c]);
    for (int c = 0; c < 3; c++) sum[c] = add(sum[c], straddle(sum[c], sum[c]));
    const Pair total = fma(sum[1], WEIGHT(i, 1), fma(sum[0], WEIGHT(i, 0), mul(sum[2], WEIGHT(i, 2))));
    if (low(total) < 2 * frame.min_intensity) dark |= 0xffu << (8 * i);
  }
  return dark;
}

// stage: of intensity and of the preview
template <int R>
DEVICE void store_row(const FrameArguments &frame, const ThreadPosition &at, u32 (&stage)[2][2][SEGMENT / 4],
                      const Colours &even, const Colours &odd, const u8 *site, bool suspect, InvalidCount &count) {
  u32 w[3], degree, turns, invalid = 0;
  Hsv hsv;
  Compared compared;
  const float darkest = polarization<R>(even, odd, w, degree, turns, hsv, compared);
  if (OUT_INTENSITY) stage_row(stage[0][R], at.lane, w);
  const bool inside = at.inside && has_row(at, R);
  if (!OUT_PREVIEW && !inside) return; // a preview is staged by the whole warp
  if (suspect && inside) {
    invalid = saturated_sites(frame, site + 2 * R * step_of(frame));
    count.saturated += __popc(invalid) / 8;
  }
  if (WANT_DARK && darkest < 2 * frame.min_intensity && inside) {
    const u32 dark = dark_sites<R>(frame, even, odd) & ~invalid;
    count.dark += __popc(dark) / 8;
    invalid |= dark;
  }
  if (OUT_PREVIEW) {
    float hue[SITES];
    u32 rgb[3];
#pragma unroll
    for (int k = 0; k < SITES; k++) {
      hue[k] = half_turns(hsv.tangent[k], hsv.s1[k]);
      if (invalid >> (8 * k) & 1) hsv.saturation[k] = 0;
    }
    preview_words(hue, hsv.saturation, hsv.value, rgb);
    interleave(rgb[0], rgb[1], rgb[2], w);
    stage_row(stage[1][R], at.lane, w);
  }
  const u32 pixel = at.pixel + 4 * at.lane + R * (out_width(frame));
  if (OUT_DOLP && inside) store32((u8 *)frame.out[DOLP] + frame_pixels(frame) + pixel, degree & ~invalid);
  if (OUT_AOLP && inside) store32((u8 *)frame.out[AOLP] + frame_pixels(frame) + pixel, turns & ~invalid);
  if (OUT_S0 && inside)
    store64((u8 *)frame.out[S0] + 2 * (frame_pixels(frame) + pixel), compared.s0[0], compared.s0[1]);
#pragma unroll
  for (int plane = 0; plane < (OUT_SUMS ? 2 : 0); plane++)
    if (inside)
      store64((u8 *)frame.out[SUMS] +
                  2 * (2 * frame_pixels(frame) + plane * (out_height(frame) * out_width(frame)) + pixel),
              compared.sums[plane][0], compared.sums[plane][1]);
}

// Products of two lines. suspect: whether a raw sample of either line is saturated.
DEVICE void store_line_products(const FrameArguments &frame, const ThreadPosition &at, u32 (&stage)[2][2][SEGMENT / 4],
                                Colours (&even)[2], Colours (&odd)[2], const u8 *site, const bool (&suspect)[2],
                                InvalidCount &count) {
  scale<0>(even[0]);
  scale<0>(odd[0]);
  scale<1>(even[1]);
  scale<1>(odd[1]);
  store_row<0>(frame, at, stage, even[0], odd[0], site, suspect[0], count);
  store_row<1>(frame, at, stage, even[1], odd[1], site, suspect[1], count);
  if (OUT_INTENSITY || OUT_PREVIEW) {
    const size_t base = 3 * frame_pixels(frame);
    sync_warp();
    if (OUT_INTENSITY) store_staged(stage[0][0], at.lane, (u8 *)frame.out[INTENSITY] + base, at.pieces);
    if (OUT_PREVIEW) store_staged(stage[1][0], at.lane, (u8 *)frame.out[PREVIEW] + base, at.pieces);
    sync_warp();
  }
}
#endif

// ---------------------------------------------------------------------------------------------------- whole row
// parities

DEVICE bool has_saturated(const Line &line) { return (has_255(line.w[1]) | has_255(line.w[2])) & BYTES_255; }

// two lines of one parity, from six
DEVICE void debayer_lines(const Line (&line)[6], bool first, bool last, Colours &even, Colours &odd) {
  Sites v[6];
#pragma unroll
  for (int k = 0; k < 6; k++) unpack(line[k], first, last, v[k]);
  debayer<ByteScale, 0, 0>(v[0], v[1], v[2], v[3], v[4], even);
  debayer<ByteScale, 0, 1>(v[1], v[2], v[3], v[4], v[5], odd);
}

#if PARITIES == 2
// Both parities of two output rows. read(parity, k): line k of six around them.
template <class Read>
DEVICE void both_parities(const FrameArguments &frame, const ThreadPosition &at, u32 (&stage)[2][2][SEGMENT / 4],
                          const u8 *site, bool first, bool last, Read read, InvalidCount &count) {
  bool suspect[2];
#if FUSED
  Colours even[2], odd[2];
#else
  Colours even[2];
  Colours(&odd)[2] = even;
#endif
  Line upper[6], lower[6];
#pragma unroll
  for (int k = 0; k < 6; k++) upper[k] = read(0, k);
  suspect[0] = has_saturated(upper[2]);
  suspect[1] = has_saturated(upper[3]);
  debayer_lines(upper, first, last, even[0], even[1]);
  store_angles<0>(frame, at, stage, even[0], even[1]);
  compiler_fence();
#pragma unroll
  for (int k = 0; k < 6; k++) lower[k] = read(1, k);
  suspect[0] |= has_saturated(lower[2]);
  suspect[1] |= has_saturated(lower[3]);
  debayer_lines(lower, first, last, odd[0], odd[1]);
  store_angles<1>(frame, at, stage, odd[0], odd[1]);
#if FUSED
  store_line_products(frame, at, stage, even, odd, site, suspect, count);
#else
#pragma unroll
  for (int r = 0; r < 2; r++)
    if (suspect[r] && at.inside && has_row(at, r))
      count.saturated += __popc(saturated_sites(frame, site + 2 * r * step_of(frame))) / 8;
#endif
}
#else
// Saturated sites of a line: row parity 1 leaves to parity 0 what is saturated there too. other: the line of the other
// parity.
DEVICE u32 count_saturated(const Line &line, const u8 *other, int parity) {
  u32 n = 0;
  if (has_saturated(line))
    for (int i = 0; i < SITES; i++) {
      const u32 site = line.w[1 + i / 2] >> (16 * (i % 2));
      const bool here = (site & 255) == 255 || (site >> 8 & 255) == 255;
      n += here && !(parity && (load8(other + 2 * i) == 255 || load8(other + 2 * i + 1) == 255));
    }
  return n;
}
#endif

// the raw row of a lattice line of a parity, reflected beyond the border
DEVICE int raw_row(const FrameArguments &frame, int line, int parity) {
  const int last = ((height_of(frame) - parity + 1) >> 1) - 1;
  return 2 * (line < 0 ? -line : line > last ? 2 * last - line : line) + parity;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) color_half(const FrameArguments frame) {
  SHARED_MEMORY(memory);
  Shared &s = *(Shared *)memory;
  launch_dependents();
  const int warp = threadIdx.x / 32, width = out_width(frame), rows = out_height(frame);
  const u8 *raw = frame.raw + blockIdx.z * frame.raw_stride;
  InvalidCount count = {0, 0};

#if WINDOW == WINDOW_REGISTERS
  const int segments = (width + 32 * SITES - 1) / (32 * SITES), across = (segments + WARPS - 1) / WARPS;
  const int segment = (blockIdx.x % across) * WARPS + warp, strip = blockIdx.x / across;
  if (segment >= segments) return; // a whole warp
#if PARITIES == 2
  ThreadPosition at = thread_position(frame, strip * ROWS, segment * 32 * SITES);
  const bool first = at.x == 0, last = at.x == width - SITES;
  const u8 *own = raw + 2 * at.x;
  // All loads before the first use; the window moves down by two lines of each parity.
  auto load = [&](int parity, int line) {
    return load_line(own + (u32)(raw_row(frame, line, parity) * step_of(frame)), first, last);
  };
  Line window[2][6];
#pragma unroll
  for (int k = 0; k < 12; k++) window[k / 6][k % 6] = load(k / 6, at.y - 2 + k % 6);
#pragma unroll
  for (int step = 0; step < ROWS / 2; step++) {
    auto read = [&](int parity, int k) { return window[parity][(2 * step + k) % 6]; };
    both_parities(frame, at, s.stage[warp], own + (u32)(2 * at.y * step_of(frame)), first, last, read, count);
    if (step + 1 == ROWS / 2) break;
#pragma unroll
    for (int k = 0; k < 4; k++) window[k / 2][(2 * step + k % 2) % 6] = load(k / 2, at.y + 4 + k % 2);
    move_down(frame, at);
  }
#else
  // the window of six lines rotates by compile-time index: three steps of two lines bring it back
  const int parity = strip % 2;
  ThreadPosition at = thread_position(frame, strip / 2 * ROWS, segment * 32 * SITES);
  const bool first = at.x == 0, last = at.x == width - SITES;
  const u8 *own = raw + 2 * at.x;
  auto read = [&](int line) {
    return load_line(own + (u32)(raw_row(frame, line, parity) * step_of(frame)), first, last);
  };
  Sites window[6];
  {
    Line ahead[4];
#pragma unroll
    for (int k = 0; k < 4; k++) ahead[k] = read(at.y - 2 + k);
#pragma unroll
    for (int k = 0; k < 4; k++) unpack(ahead[k], first, last, window[k]);
    if (at.inside)
#pragma unroll
      for (int k = 2; k < 4; k++)
        if (at.y - 2 + k < rows)
          count.saturated += count_saturated(
              ahead[k], raw + (size_t)(2 * (at.y - 2 + k) + 1 - parity) * step_of(frame) + 2 * at.x, parity);
  }
  Line next[2] = {read(at.y + 2), read(at.y + 3)};
#pragma unroll
  for (int step = 0; step < ROWS / 2; step++) {
#define LINE_AT(k) window[(2 * step + (k)) % 6]
    unpack(next[0], first, last, LINE_AT(4));
    unpack(next[1], first, last, LINE_AT(5));
    if (step + 1 < ROWS / 2) {
      if (at.inside)
#pragma unroll
        for (int k = 0; k < 2; k++)
          if (at.y + 2 + k < rows)
            count.saturated += count_saturated(
                next[k], raw + (size_t)(2 * (at.y + 2 + k) + 1 - parity) * step_of(frame) + 2 * at.x, parity);
      next[0] = read(at.y + 4);
      next[1] = read(at.y + 5);
    }
    Colours even, odd;
    debayer<ByteScale, 0, 0>(LINE_AT(0), LINE_AT(1), LINE_AT(2), LINE_AT(3), LINE_AT(4), even);
    debayer<ByteScale, 0, 1>(LINE_AT(1), LINE_AT(2), LINE_AT(3), LINE_AT(4), LINE_AT(5), odd);
    if (parity)
      store_angles<1>(frame, at, s.stage[warp], even, odd);
    else
      store_angles<0>(frame, at, s.stage[warp], even, odd);
    move_down(frame, at);
#undef LINE_AT
  }
#endif

#else // WINDOW_RING
  const int strips = (width + STRIP - 1) / STRIP, strip = blockIdx.x % strips, strip_x = strip * STRIP;
  ThreadPosition at = thread_position(frame, blockIdx.x / strips * ROWS, strip_x + warp * 32 * SITES);
  const bool first = at.x == 0, last = at.x == width - SITES, idle = strip_x + warp * 32 * SITES >= width;
  // Lines come in fours: two of the lattice, both parities. The ring is of pointers to fours, as offsets: half the
  // registers.
  u8 *const lines = s.ring[0];
  auto fetch = [&](int line, u32 four) {
    constexpr int PIECES = PITCH / 16;
    for (int i = threadIdx.x; i < 4 * PIECES; i += THREADS) {
      const int k = i / PIECES, piece = i - k * PIECES, byte = 2 * strip_x - 16 + 16 * piece;
      if (byte >= 0 && byte < width_of(frame))
        async_copy16(
            lines + four + k * PITCH + 16 * piece,
            raw + (size_t)(2 * reflect(line + k / 2, (height_of(frame) - k % 2 + 1) >> 1) + k % 2) * step_of(frame) +
                byte);
    }
    async_commit();
  };
  u32 ring[FOURS];
#pragma unroll
  for (int k = 0; k < FOURS; k++) {
    ring[k] = 4 * k * PITCH;
    if (k + 1 < FOURS) fetch(at.y - 2 + 2 * k, ring[k]);
  }
#pragma unroll 1
  for (int step = 0; step < ROWS / 2; step++) {
    // Still under way may be what this step does not read. Once past the barrier, all threads have left the step
    // before, whose first four lines the next ones overwrite.
    async_wait<FOURS - 4>();
    sync_block();
    if (step + 1 < ROWS / 2)
      fetch(at.y - 2 + 2 * (FOURS - 1), ring[FOURS - 1]);
    else
      async_commit(); // keeps the count
    auto read = [&](int parity, int k) {
      const u8 *p = lines + ring[k / 2] + (k % 2 * 2 + parity) * PITCH + 16 + 2 * (at.x - strip_x);
      const uint2 w = *(const uint2 *)p;
      return Line{{*(const u32 *)(p - 4), w.x, w.y, *(const u32 *)(p + 8)}};
    };
    if (!idle)
      both_parities(frame, at, s.stage[warp], raw + (size_t)(2 * at.y) * step_of(frame) + 2 * at.x, first, last, read,
                    count);
    move_down(frame, at);
    const u32 used = ring[0];
#pragma unroll
    for (int k = 0; k + 1 < FOURS; k++) ring[k] = ring[k + 1];
    ring[FOURS - 1] = used;
  }
#endif
  count_invalid(frame, count);
  grid_dependency_wait_in_one_block();
}
