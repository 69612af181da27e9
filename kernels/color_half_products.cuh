// `color_half`: products of all four angles, of lines with both row parities.
#ifndef POLAR_COLOR_HALF_PRODUCTS_CUH
#define POLAR_COLOR_HALF_PRODUCTS_CUH
#include "color_half_lines.cuh"

// Own samples are scaled to [0, 1/2], as far as one multiplication reaches, and therefore have twice the weight of the
// other colours. First the weight of a level in a byte of intensity, then 1/DIVISOR of a colour's weight in luma.
template <int LINE> DEVICE Pair level_weight(int site, int channel) {
  constexpr Pair once = splat(255 / 4.0), twice = splat(2 * (255 / 4.0));
  return is_sample(0, LINE, site, channel) ? twice : once;
}
template <int LINE, int CHANNEL, int DIVISOR = 1> DEVICE Pair luma_weight(int site) {
  constexpr float weight = (CHANNEL == 1 ? LUMA_GREEN : LUMA_RED) / DIVISOR;
  constexpr Pair once = splat(weight), twice = splat(2 * weight);
  return is_sample(0, LINE, site, CHANNEL) ? twice : once;
}
// the luma of a site, over DIVISOR
template <int LINE, int DIVISOR = 1> DEVICE Pair luma_at(const Pair (&rgb)[3], int site) {
  return fma(rgb[1], luma_weight<LINE, 1, DIVISOR>(site),
             fma(rgb[0], luma_weight<LINE, 0, DIVISOR>(site), mul(rgb[2], luma_weight<LINE, 2, DIVISOR>(site))));
}
// the weights of a colour at two neighbouring sites
template <int LINE, int CHANNEL> DEVICE Pair luma_weights() {
  return join(luma_weight<LINE, CHANNEL>(0), luma_weight<LINE, CHANNEL>(1));
}

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

// Intensity, DoLP and AoLP of four sites of a line; returns the smallest sum of the four angles' luma. even, odd: by
// raw row parity.
template <int LINE>
DEVICE float polarization(const Colours &even, const Colours &odd, u32 (&intensity)[3], u32 &degree, u32 &turns,
                          Hsv &hsv) {
  u32 level[2][3], d[2], t[2];
  float darkest = 4;
#pragma unroll
  for (int k = 0; k < 2; k++) {
    const int a = 2 * k, b = 2 * k + 1; // sites
    Pair sum[3], difference[2][3];      // of all four angles, sites as lanes; of orthogonal angles, by site
#pragma unroll
    for (int c = 0; c < 3; c++) {
      const Pair sa = add(even[a][c], odd[a][c]), sb = add(even[b][c], odd[b][c]);
      sum[c] = add(lows(sa, sb), highs(sa, sb));
      level[k][c] = fma(sum[c], join(level_weight<LINE>(0, c), level_weight<LINE>(1, c)), splat(1024));
      // differences before luma and before any rounding of sums: they are small, and lose the least precision in half
      difference[0][c] = sub(even[a][c], straddle(odd[a][c], odd[a][c]));
      difference[1][c] = sub(even[b][c], straddle(odd[b][c], odd[b][c]));
    }
    const Pair total = fma(sum[1], luma_weights<LINE, 1>(),
                           fma(sum[0], luma_weights<LINE, 0>(), mul(sum[2], luma_weights<LINE, 2>())));
    darkest = fminf(darkest, fminf(low(total), high(total)));
    float tangent[2], dolp[2], s1[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const Pair p = luma_at<LINE>(difference[i], i);
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
    // by turns_256 it would spill
    t[k] = unfolded_256(folded_256(pair(tangent[0], tangent[1])), (pair(s1[0], s1[1]) & 0x80008000u) | splat(1));
  }
  degree = low_bytes(d[0], d[1]);
  turns = low_bytes(t[0], t[1]);
  interleave(low_bytes(level[0][0], level[1][0]), low_bytes(level[0][1], level[1][1]),
             low_bytes(level[0][2], level[1][2]), intensity);
  return darkest;
}

// A byte of ones for each of four sites that is dark.
template <int LINE> DEVICE u32 dark_sites(const FrameArguments &frame, const Colours &even, const Colours &odd) {
  u32 dark = 0;
#pragma unroll
  for (int i = 0; i < SITES; i++) {
    Pair sum[3];
    for (int c = 0; c < 3; c++) sum[c] = add(even[i][c], odd[i][c]);
    for (int c = 0; c < 3; c++) sum[c] = add(sum[c], straddle(sum[c], sum[c]));
    const Pair total = luma_at<LINE>(sum, i);
    if (low(total) < 2 * frame.min_intensity) dark |= 0xffu << (8 * i);
  }
  return dark;
}

// stage: of intensity and of the preview
template <int R>
DEVICE void store_row(const FrameArguments &frame, const ThreadPosition &at, Stage &stage, const Colours &even,
                      const Colours &odd, const u8 *site, bool suspect, InvalidCount &count) {
  u32 w[3], degree, turns, invalid = 0;
  Hsv hsv;
  const float darkest = polarization<R>(even, odd, w, degree, turns, hsv);
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
}

// Products of two lines. suspect: whether a raw sample of either line is saturated.
DEVICE void store_line_products(const FrameArguments &frame, const ThreadPosition &at, Stage &stage, Colours (&even)[2],
                                Colours (&odd)[2], const u8 *site, const bool (&suspect)[2], InvalidCount &count) {
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

// Both parities of two output rows. read(parity, k): line k of six around them.
template <class Read>
DEVICE void both_parities(const FrameArguments &frame, const ThreadPosition &at, Stage &stage, const u8 *site,
                          bool first, bool last, Read read, InvalidCount &count) {
  bool suspect[2];
  Colours lattice[FUSED ? 2 : 1][2]; // angle images alone need one row parity at a time
  Colours(&even)[2] = lattice[0], (&odd)[2] = lattice[FUSED ? 1 : 0];
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
  if (FUSED) return store_line_products(frame, at, stage, even, odd, site, suspect, count);
#pragma unroll
  for (int r = 0; r < 2; r++)
    if (suspect[r] && at.inside && has_row(at, r))
      count.saturated += __popc(saturated_sites(frame, site + 2 * r * step_of(frame))) / 8;
}
#endif
