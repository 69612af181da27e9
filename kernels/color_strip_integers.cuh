// `color_strip`: the luma of the four angles in integers, for what SSIM compares.
//
// SSIM compares images that differ by little, and luma in half is rounded too coarsely to tell them apart. Of bytes,
// Malvar, He and Cutler's colors are whole 16ths, and bytes and the sums that debayering makes of them are the same
// bits as subnormal halves and as integers. A word has two integers of 16 bits, by the lanes of a pair.
#pragma once
#include "color_strip_lines.cuh"

constexpr bool IN_INTEGERS = SUBNORMAL && (OUT_SUMS || OUT_S0);

// luma of a line's sites, in steps; lanes are angles
struct LineLuma {
  u32 site[SITES];
};
constexpr int COLOR_STEPS = 16, LUMA_STEPS = 64; // of a level
static_assert(LUMA_RED * LUMA_STEPS == COLOR_STEPS && LUMA_GREEN == 2 * LUMA_RED, "luma is red + 2 green + blue");
static_assert(4 * 255 * LUMA_STEPS < 65536, "co-sited along x, luma fits a lane");

// A coefficient of a color. 32-bit arithmetic adds up both lanes at once: a low lane that is negative borrows from the
// high one, and gives it back when it is positive again.
CONSTANT u32 in_steps(double coefficient) { return (u32)(int)(COLOR_STEPS * coefficient); }
CONSTANT bool is_whole(double coefficient) { return (int)(COLOR_STEPS * coefficient) == COLOR_STEPS * coefficient; }
static_assert(is_whole(MHC_GREEN_CENTER) && is_whole(MHC_GREEN_NEAR) && is_whole(MHC_GREEN_FAR) &&
                  is_whole(MHC_ACROSS_CENTER) && is_whole(MHC_ACROSS_DIAGONAL) && is_whole(MHC_ACROSS_FAR) &&
                  is_whole(MHC_ROW_CENTER) && is_whole(MHC_ROW_NEAR) && is_whole(MHC_ROW_FAR) &&
                  is_whole(MHC_ROW_SIDE) && is_whole(MHC_ROW_DIAGONAL),
              "coefficients are whole steps");

// The luma of a site, with its colors clamped as in `debayer`. Where the low lane of a color is clamped to 0, the
// high lane is a step too low: it has not got back what was borrowed.
DEVICE u32 luma_in_steps(bool at_chroma, const SiteSums &at) {
  auto clamped = [](u32 color) { return clamp_lanes<255 * COLOR_STEPS>(color); };
  const u32 center = half_word(at.center), diagonal = half_word(at.diagonal);
  if (at_chroma) {
    const u32 near = half_word(add(at.h1, at.v1)), far = half_word(add(at.h2, at.v2));
    const u32 green =
        clamped(in_steps(MHC_GREEN_CENTER) * center + in_steps(MHC_GREEN_NEAR) * near + in_steps(MHC_GREEN_FAR) * far);
    const u32 other = clamped(in_steps(MHC_ACROSS_CENTER) * center + in_steps(MHC_ACROSS_DIAGONAL) * diagonal +
                              in_steps(MHC_ACROSS_FAR) * far);
    return 2 * green + other + COLOR_STEPS * center;
  }
  const u32 h1 = half_word(at.h1), h2 = half_word(at.h2), v1 = half_word(at.v1), v2 = half_word(at.v2);
  const u32 flat = in_steps(MHC_ROW_CENTER) * center + in_steps(MHC_ROW_DIAGONAL) * diagonal;
  auto along = [=](u32 near, u32 far, u32 side) {
    return clamped(flat + in_steps(MHC_ROW_NEAR) * near + in_steps(MHC_ROW_FAR) * far + in_steps(MHC_ROW_SIDE) * side);
  };
  return along(h1, h2, v2) + along(v1, v2, h2) + 2 * COLOR_STEPS * center;
}

// Debayers a line, and finds its luma.
template <int LINE>
DEVICE void debayer_line(const Sites &a, const Sites &b, const Sites &c, const Sites &d, const Sites &e, Colors &out,
                         LineLuma &luma) {
  debayer<SampleScale, 0, LINE>(a, b, c, d, e, out, [&](int i, bool at_chroma, const SiteSums &sums) {
    if (IN_INTEGERS) luma.site[i] = luma_in_steps(at_chroma, sums);
  });
}

// Moves luma from the angles' own columns to the superpixels' centers: three times a site's and once its neighbor's,
// which is to the right for the angle of the low lane and to the left for the other.
DEVICE void co_site_luma(const LanePosition &at, LineLuma &luma) {
  if (!IN_INTEGERS || !CO_SITED) return;
  const LineLuma own = luma;
  const u32 outer = permute(own.site[0], own.site[SITES - 1], 0x7610); // what the lanes on either side need
  u32 left = shuffle(outer, at.lane - 1), right = shuffle(outer, at.lane + 1);
  if (at.is_edge) {
    if (at.first) left = own.site[0];
    if (at.last) right = own.site[SITES - 1];
  }
#pragma unroll
  for (int k = 0; k < SITES; k++) {
    const u32 beside = permute(k + 1 < SITES ? own.site[k + 1] : right, k > 0 ? own.site[k - 1] : left, 0x7610);
    luma.site[k] = 3 * own.site[k] + beside;
  }
}

// The lines of luma, co-sited along x, that the angles of a row's sites come from: the upper and the lower raw row of
// the superpixels, and of the same parities the line under it and the one above it, of which co-siting takes a third as
// much.
struct RowLuma {
  LineLuma upper, under, lower, over;
};
// Sums and differences of a site's orthogonal angles: I(00) +- I(11), of places whose row and column add up to an even
// number, and I(01) +- I(10). WHITE: full scale of an angle.
struct SiteLuma {
  static constexpr float WHITE = 255 * LUMA_STEPS * (CO_SITED ? 16 : 1);
  float even_sum, odd_sum, even_difference, odd_difference;
};
DEVICE SiteLuma site_luma(const RowLuma &row, int k) {
  constexpr u32 NEAR = CO_SITED ? 3 : 1;
  constexpr float OFFSET = 8388608.0f; // 2^23: the last bit is the unit
  auto add_angle = [](u32 near, u32 far, int lane, u32 sum) {
    if (CO_SITED) sum = dot_lanes(far, 1u << (8 * lane), sum);
    return dot_lanes(near, NEAR << (8 * lane), sum);
  };
  const u32 i11 = add_angle(row.lower.site[k], row.over.site[k], 1, as_bits(OFFSET));
  const u32 i10 = add_angle(row.lower.site[k], row.over.site[k], 0, as_bits(OFFSET));
  const u32 even = add_angle(row.upper.site[k], row.under.site[k], 0, i11),
            odd = add_angle(row.upper.site[k], row.under.site[k], 1, i10);
  SiteLuma luma;
  luma.even_sum = as_float(even) - OFFSET;
  luma.odd_sum = as_float(odd) - OFFSET;
  luma.even_difference = fmaf(as_float(i11) - OFFSET, -2, luma.even_sum);
  luma.odd_difference = fmaf(as_float(i10) - OFFSET, -2, luma.odd_sum);
  return luma;
}
