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
#pragma unroll
    for (int k = 0; k < ROWS + 2; k++) {
        int row = y0 - 1 + k;
        if (row < 0) row = 1;
        if (row >= frame.height) row = max(0, min(2 * (frame.height - 1) - row, frame.height - 1));
        lines[k] = load_line(raw + (u32)(row * frame.step), to_left, to_right);
    }
    u32 hot = 0;
#pragma unroll
    for (int k = 0; k < ROWS + 2; k++) {
#pragma unroll
        for (int j = 0; j < 4; j++) hot |= has_255(lines[k].w[j]);
        hot |= has_255(lines[k].left) | has_255(lines[k].right);
    }
    const u32 bias = dark_bias(frame, 8);
    Count count = {0, 0};
    Columns above = columns(lines[0]), own = columns(lines[1]);
    const size_t base = (size_t)blockIdx.z * frame.height * frame.width;  // of this frame
    u32 index = y0 * frame.width + x;
#pragma unroll
    for (int i = 0; i < ROWS; i++, index += frame.width) {
        const Columns under = columns(lines[i + 2]);
        // sums of the rows above and below: even and odd columns, and the neighbours outside
        u32 even[4], odd[4], light = ~0u, keep[4] = {~0u, ~0u, ~0u, ~0u};
#pragma unroll
        for (int k = 0; k < 4; k++) { even[k] = above.even[k] + under.even[k]; odd[k] = above.odd[k] + under.odd[k]; }
        const u32 left = above.left + under.left, right = above.right + under.right;
        Lanes e[4], o[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const u32 before = permute(k ? own.odd[k - 1] : own.left << 16, own.odd[k], 0x5432);    // odd columns left of even[k]
            const u32 before2 = permute(k ? odd[k - 1] : left << 16, odd[k], 0x5432);
            const u32 after = permute(own.even[k], k < 3 ? own.even[k + 1] : own.right, 0x5432);    // even columns right of odd[k]
            const u32 after2 = permute(even[k], k < 3 ? even[k + 1] : right, 0x5432);
            const Cross ce = {own.even[k], before + own.odd[k], even[k], before2 + odd[k]};
            const Cross co = {own.odd[k], own.even[k] + after, odd[k], even[k] + after2};
            e[k] = i % 2 ? stokes_lanes<1, 0>(ce) : stokes_lanes<0, 0>(ce);
            o[k] = i % 2 ? stokes_lanes<1, 1>(co) : stokes_lanes<0, 1>(co);
            light &= (e[k].sum + bias) & (o[k].sum + bias);
        }
        const bool inside = y0 + i < frame.height;
        if (((hot & BYTES_255) || (WANT_DARK && (light & 0x80008000u) != 0x80008000u)) && inside) {  // rare: find out where
            const u32 hl = hot_lanes(above.left, own.left, under.left), hr = hot_lanes(above.right, own.right, under.right);
            u32 he[4], ho[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                he[k] = hot_lanes(above.even[k], own.even[k], under.even[k]);
                ho[k] = hot_lanes(above.odd[k], own.odd[k], under.odd[k]);
            }
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const u32 full_even = he[k] | ho[k] | permute(k ? ho[k - 1] : hl << 16, ho[k], 0x5432);
                const u32 full_odd = ho[k] | he[k] | permute(he[k], k < 3 ? he[k + 1] : hr, 0x5432);
                const u32 dark_even = WANT_DARK ? ~(e[k].sum + bias) >> 15 & 0x00010001u & ~full_even : 0;
                const u32 dark_odd = WANT_DARK ? ~(o[k].sum + bias) >> 15 & 0x00010001u & ~full_odd : 0;
                count.saturated += __popc(full_even) + __popc(full_odd);
                count.dark += __popc(dark_even) + __popc(dark_odd);
                keep[k] = keep_bytes(full_even | dark_even, full_odd | dark_odd, 0x6240);
            }
        }
        u32 mean[4], degree[4], turns[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const Bytes be = encode(e[k]), bo = encode(o[k]);
            mean[k] = permute(be.mean, bo.mean, 0x7351);
            degree[k] = permute(be.degree, bo.degree, 0x6240) & keep[k];
            turns[k] = permute(be.turns, bo.turns, 0x6240) & keep[k];
        }
        if (inside) {
            if (OUT_INTENSITY) store128((u8*)frame.out[INTENSITY] + base + index, mean[0], mean[1], mean[2], mean[3]);
            if (OUT_DOLP) store128((u8*)frame.out[DOLP] + base + index, degree[0], degree[1], degree[2], degree[3]);
            if (OUT_AOLP) store128((u8*)frame.out[AOLP] + base + index, turns[0], turns[1], turns[2], turns[3]);
        }
        above = own;
        own = under;
    }
    count_invalid(frame, count);
}
