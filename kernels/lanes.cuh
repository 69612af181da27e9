// 8-bit lines as integers: a thread holds 16 raw pixels of a line as words of two 16-bit lanes, even and odd columns
// apart, so that both lanes lie at the same place of the mosaic's tile. Sums are exact; the last steps are in float and half.
#ifndef POLAR_LANES_CUH
#define POLAR_LANES_CUH
#include "products.cuh"

constexpr int WIDE = 16;  // raw pixels a thread along x

// One raw line of a thread: 16 bytes, and its neighbours on either side.
struct Line { u32 w[4], left, right; };
DEVICE Line load_line(const u8* p, int to_left, int to_right) {
    const uint4 w = load128(p);
    return Line{{w.x, w.y, w.z, w.w}, load8(p + to_left), load8(p + to_right)};
}

// Its even and odd columns, each as four words of two 16-bit lanes.
struct Columns { u32 even[4], odd[4], left, right; };
DEVICE Columns columns(const Line& line) {
    Columns c;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        c.even[k] = line.w[k] & 0x00ff00ffu;
        c.odd[k] = permute(line.w[k], 0u, 0x4341);
    }
    c.left = line.left;
    c.right = line.right;
    return c;
}

// a 16-bit lane behind the exponent of 0.5: 0.5 + lane/65536, without a conversion
template <int HIGH> DEVICE float lane_as_float(u32 lanes) { return as_float(permute(lanes, 0x3F000000u, HIGH ? 0x7324 : 0x7104)); }

// tan of the folded AoLP and DoLP of one lane. s1, s2: 16 levels each, plus 8192; sum: 16 levels of all four angles.
struct Polar { float tangent, degree; };
template <int HIGH> DEVICE Polar polar(u32 s1, u32 s2, u32 sum) {
    const float x = fmaf(lane_as_float<HIGH>(s1), 2.0f, -1.25f), y = fmaf(lane_as_float<HIGH>(s2), 2.0f, -1.25f);
    const float s0 = lane_as_float<HIGH>(sum) - 0.49999997f;  // not quite 0 where all is black
    const float length = fast_sqrt(fmaf(x, x, fmaf(y, y, 1e-30f)));
    return Polar{y * fast_rcp(length + fabsf(x)), saturate(length * fast_rcp(s0))};
}

// +-1 with the sign of S1; s1: as above
DEVICE Pair sign_of(u32 s1) { return fma(s1 & 0x20002000u, PAIR(256), PAIR(-1)); }  // as a half, 0x2000 is 1/128

// A byte of ones for every lane that is not bad. Bits 0 and 16 of a word are its lanes.
DEVICE u32 keep_bytes(u32 bad_first, u32 bad_second, u32 order) {
    return ~((permute(bad_first, bad_second, order) & 0x01010101u) * 255u);
}

// What to add to a word of sums (below 2^14) so that bit 15 of a lane is clear where the pixel is dark. `levels`: the sum's
// number for one level of S0.
DEVICE u32 dark_bias(const Frame& frame, float levels) {
    return 0x80008000u - min((u32)ceilf(frame.min_intensity * levels * FULL), 0x7fffu) * 0x10001u;
}
#endif
