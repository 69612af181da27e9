// Mono, full resolution, bilinear, 8 bit in and out: intensity, DoLP and AoLP in integers.
//
// A thread takes 16 pixels along x and ROWS along y. With C the pixel's own sample, H, V and D the bilinear values of the
// angles of its row, its column and the diagonals: S0/2 is their mean, and (S1, S2) is (C - D, H - V), up to signs and order that
// depend on the place in the tile only, since diagonal neighbours are orthogonal. All in quarters of a level, exact.
#include "lanes.cuh"

#ifndef THREADS
#define THREADS 128
#endif
#ifndef ROWS
#define ROWS 2           // rows a thread, even
#endif
static_assert(ROWS % 2 == 0, "the parity of a row must be known at compile time");
static_assert(!COLOR && !HALF_RESOLUTION && DEMOSAIC == METHOD_BILINEAR && RAW_FORMAT == RAW_U8 && HALF_PRECISION, "see supports() in schedule.py");
static_assert(OUT_INTENSITY < 2 && OUT_DOLP < 2 && OUT_AOLP < 2 && !WANT_ANGLES && !OUT_STOKES && !OUT_PREVIEW && !OUT_SUMS && !OUT_S0, "uint8 intensity, dolp and aolp only");

// Two pixels at one place of the tile: own samples, sums of the neighbours along the row, the column, the diagonals.
struct Cross { u32 own, row, column, diagonal; };

// sum: 4 (C + H + V + D); s1, s2: 4 levels each, plus 8192. (R, J): place in the tile.
struct Lanes { u32 sum, s1, s2; };
template <int R, int J> DEVICE Lanes stokes_lanes(const Cross& c) {
    constexpr int own = angle_at(R, J), along = angle_at(R, 1 - J);
    const u32 twice = c.row + c.column, centre = 4u * c.own;
    const u32 p = own < 2 ? centre - c.diagonal : c.diagonal - centre;                       // I(own) - I(own + 90)
    const u32 q = along < 2 ? 2u * (c.row - c.column) : 2u * (c.column - c.row);             // likewise for the row's angle
    constexpr bool straight = own % 2 == 0;                                                  // own is 0 or 90: p is S1
    return Lanes{centre + c.diagonal + 2u * twice, (straight ? p : q) + 0x20002000u, (straight ? q : p) + 0x20002000u};
}

struct Bytes { u32 mean, degree, turns; };  // of two pixels, one a lane: mean in the high byte, the others in the low one
DEVICE Bytes encode(const Lanes& v) {
    const Polar l = polar<0>(v.s1, v.s2, v.sum), h = polar<1>(v.s1, v.s2, v.sum);
    Bytes out;
    out.mean = v.sum * 16u + 0x00800080u;
    out.degree = fma(pair(l.degree, h.degree), PAIR(255), PAIR(1024));
    out.turns = turns_256(pair(l.tangent, h.tangent), sign_of(v.s1));
    return out;
}

// saturated samples of three lines, columns apart: bit 0 of a lane
DEVICE u32 hot_lanes(u32 a, u32 b, u32 c) { return ((a + 0x00010001u) | (b + 0x00010001u) | (c + 0x00010001u)) >> 8 & 0x00010001u; }

extern "C" __global__ void __launch_bounds__(THREADS) mono_full(const Frame frame) {
    const int across = frame.width / WIDE;
    const u32 id = blockIdx.x * THREADS + threadIdx.x, strip = id / across;
    const int y0 = strip * ROWS, x = (id - strip * across) * WIDE;
    const u8* raw = frame.raw + blockIdx.z * frame.raw_stride + x;
    const int to_left = x == 0 ? 1 : -1, to_right = x == frame.width - WIDE ? WIDE - 2 : WIDE;
    Line lines[ROWS + 2];
    u32 suspect = 0;
#pragma unroll
    for (int k = 0; k < ROWS + 2; k++) {
        int row = y0 - 1 + k;
        if (row < 0) row = 1;
        if (row >= frame.height) row = max(0, min(2 * (frame.height - 1) - row, frame.height - 1));
        lines[k] = load_line(raw + (size_t)row * frame.step, to_left, to_right);
    }
#pragma unroll
    for (int k = 0; k < ROWS + 2; k++) {
        suspect |= (u32)(lines[k].left == 255) | (u32)(lines[k].right == 255);
#pragma unroll
        for (int j = 0; j < 4; j++) suspect |= has_255(lines[k].w[j]);
    }
    const u32 threshold = dark_lanes(frame, 8);
    Count count = {0, 0};
    Columns above = columns(lines[0]), own = columns(lines[1]);
    size_t index = ((size_t)blockIdx.z * frame.height + y0) * frame.width + x;
#pragma unroll
    for (int i = 0; i < ROWS; i++, index += frame.width) {
        const Columns under = columns(lines[i + 2]);
        // sums of the rows above and below: even and odd columns, and the neighbours outside
        u32 even[4], odd[4], dark_even[4], dark_odd[4], mean[4], degree[4], turns[4], dark = 0;
#pragma unroll
        for (int k = 0; k < 4; k++) { even[k] = above.even[k] + under.even[k]; odd[k] = above.odd[k] + under.odd[k]; }
        const u32 left = above.left + under.left, right = above.right + under.right;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const u32 before = permute(k ? own.odd[k - 1] : own.left << 16, own.odd[k], 0x5432);    // odd columns left of even[k]
            const u32 before2 = permute(k ? odd[k - 1] : left << 16, odd[k], 0x5432);
            const u32 after = permute(own.even[k], k < 3 ? own.even[k + 1] : own.right, 0x5432);    // even columns right of odd[k]
            const u32 after2 = permute(even[k], k < 3 ? even[k + 1] : right, 0x5432);
            const Cross e = {own.even[k], before + own.odd[k], even[k], before2 + odd[k]};
            const Cross o = {own.odd[k], own.even[k] + after, odd[k], even[k] + after2};
            const Lanes le = i % 2 ? stokes_lanes<1, 0>(e) : stokes_lanes<0, 0>(e), lo = i % 2 ? stokes_lanes<1, 1>(o) : stokes_lanes<0, 1>(o);
            const Bytes be = encode(le), bo = encode(lo);
            mean[k] = permute(be.mean, bo.mean, 0x7351);
            degree[k] = permute(be.degree, bo.degree, 0x6240);
            turns[k] = permute(be.turns, bo.turns, 0x6240);
            if (WANT_DARK) {
                dark_even[k] = below(le.sum, threshold);
                dark_odd[k] = below(lo.sum, threshold);
                dark |= dark_even[k] | dark_odd[k];
            }
        }
        if (y0 + i < frame.height) {
            if (suspect | dark) {  // rare: find out which pixels
                const u32 hl = hot_lanes(above.left, own.left, under.left), hr = hot_lanes(above.right, own.right, under.right);
                u32 he[4], ho[4];
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    he[k] = hot_lanes(above.even[k], own.even[k], under.even[k]);
                    ho[k] = hot_lanes(above.odd[k], own.odd[k], under.odd[k]);
                }
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    const u32 hot_even = he[k] | ho[k] | permute(k ? ho[k - 1] : hl << 16, ho[k], 0x5432);
                    const u32 hot_odd = ho[k] | he[k] | permute(he[k], k < 3 ? he[k + 1] : hr, 0x5432);
                    const u32 de = WANT_DARK ? dark_even[k] >> 15 & ~hot_even : 0, od = WANT_DARK ? dark_odd[k] >> 15 & ~hot_odd : 0;
                    count.saturated += __popc(hot_even) + __popc(hot_odd);
                    count.dark += __popc(de) + __popc(od);
                    const u32 keep = keep_bytes(hot_even | de, hot_odd | od, 0x6240);
                    degree[k] &= keep;
                    turns[k] &= keep;
                }
            }
            if (OUT_INTENSITY) store128((u8*)frame.out[INTENSITY] + index, mean[0], mean[1], mean[2], mean[3]);
            if (OUT_DOLP) store128((u8*)frame.out[DOLP] + index, degree[0], degree[1], degree[2], degree[3]);
            if (OUT_AOLP) store128((u8*)frame.out[AOLP] + index, turns[0], turns[1], turns[2], turns[3]);
        }
        above = own;
        own = under;
    }
    count_invalid(frame, count);
}
