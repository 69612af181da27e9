// Mono, half resolution, co-sited bilinear, 8 bit in and out: intensity, DoLP and AoLP in integers, bound by memory.
//
// A thread takes 8 superpixels along x and ROWS along y and loads all its lines first. Each of the four angles is moved to
// the superpixel's centre by the weights 9 3 / 3 1, as 3a + b down and then along, on pairs of 16-bit lanes: the two
// lanes of a word are neighbouring superpixels. Sums are 16 times a level, exact.
#include "lanes.cuh"

#ifndef THREADS
#define THREADS 128
#endif
#ifndef ROWS
#define ROWS 2           // rows of superpixels a thread
#endif
#if defined(BLOCKS)
#elif __CUDA_ARCH__ >= 900
#define BLOCKS (896 / THREADS)  // per multiprocessor, that registers must leave room for: 72 registers a thread
#else
#define BLOCKS (640 / THREADS)  // 96 registers a thread: older assemblers spill below
#endif
static_assert(!COLOR && HALF_RESOLUTION && CO_SITED && DEMOSAIC == METHOD_BILINEAR && RAW_FORMAT == RAW_U8 && HALF_PRECISION, "see supports() in schedule.py");
static_assert(OUT_INTENSITY < 2 && OUT_DOLP < 2 && OUT_AOLP < 2 && !WANT_ANGLES && !OUT_STOKES && !OUT_PREVIEW && !OUT_SUMS && !OUT_S0, "uint8 intensity, dolp and aolp only");

// 3a + b down, then along: even columns lean on the right neighbour, odd ones on the left.
DEVICE void even_columns(const Columns& own, const Columns& other, u32 (&out)[4]) {
    u32 v[5];
#pragma unroll
    for (int k = 0; k < 4; k++) v[k] = 3u * own.even[k] + other.even[k];
    v[4] = 3u * own.right + other.right;
#pragma unroll
    for (int k = 0; k < 4; k++) out[k] = 3u * v[k] + permute(v[k], v[k + 1], 0x5432);
}
DEVICE void odd_columns(const Columns& own, const Columns& other, u32 (&out)[4]) {
    u32 v[4];
#pragma unroll
    for (int k = 0; k < 4; k++) v[k] = 3u * own.odd[k] + other.odd[k];
    out[0] = 3u * v[0] + permute(3u * own.left + other.left, v[0], 0x5410);
#pragma unroll
    for (int k = 1; k < 4; k++) out[k] = 3u * v[k] + permute(v[k - 1], v[k], 0x5432);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) mono_half(const Frame frame) {
    const int width = frame.width >> 1, height = frame.height >> 1, across = frame.width / WIDE;
    const u32 id = blockIdx.x * THREADS + threadIdx.x, strip = id / across, y0 = strip * ROWS;
    const int x = (id - strip * across) * WIDE;
    const u8* raw = frame.raw + blockIdx.z * frame.raw_stride + x;
    const int to_left = x == 0 ? 1 : -1, to_right = x == frame.width - WIDE ? WIDE - 2 : WIDE;
    // raw rows 2 y0 - 1 .. 2 y0 + 2 ROWS; beyond the frame the nearest row of the same parity (reflect-101)
    Line lines[2 * ROWS + 2];
#pragma unroll
    for (int k = 0; k < 2 * ROWS + 2; k++) {
        int row = 2 * (int)y0 - 1 + k;
        if (row < 0) row = 1;
        if (row >= frame.height) row = frame.height - 1 - ((frame.height - 1 - row) & 1);
        lines[k] = load_line(raw + (u32)(row * frame.step), to_left, to_right);
    }
    const u32 bias = dark_bias(frame, 32);
    Count count = {0, 0};
    Columns c[4] = {columns(lines[0]), columns(lines[1]), {}, {}};  // odd row above, even row, odd row, even row below
    const size_t base = (size_t)blockIdx.z * height * width;  // of this frame
    u32 index = y0 * width + (x >> 1);
#pragma unroll
    for (int i = 0; i < ROWS; i++, index += width) {
        c[2] = columns(lines[2 * i + 2]);
        c[3] = columns(lines[2 * i + 3]);
        u32 a[4][4], sum[4], hot = 0, light = ~0u, valid[2] = {~0u, ~0u};  // a: [angle][word]
        even_columns(c[1], c[3], a[angle_at(0, 0)]);
        odd_columns(c[1], c[3], a[angle_at(0, 1)]);
        even_columns(c[2], c[0], a[angle_at(1, 0)]);
        odd_columns(c[2], c[0], a[angle_at(1, 1)]);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            sum[k] = a[0][k] + a[1][k] + a[2][k] + a[3][k];
            hot |= has_255(lines[2 * i + 1].w[k]) | has_255(lines[2 * i + 2].w[k]);
            light &= sum[k] + bias;
        }
        const bool inside = (int)y0 + i < height;
        if (((hot & BYTES_255) || (WANT_DARK && (light & 0x80008000u) != 0x80008000u)) && inside) {  // rare: find out where
            const u32 one = 0x00010001u;
            u32 bad[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const u32 full = ((c[1].even[k] + one) | (c[1].odd[k] + one) | (c[2].even[k] + one) | (c[2].odd[k] + one)) >> 8 & one;
                const u32 dark = WANT_DARK ? ~(sum[k] + bias) >> 15 & one & ~full : 0;
                count.saturated += __popc(full);
                count.dark += __popc(dark);
                bad[k] = full | dark;
            }
            valid[0] = keep_bytes(bad[0], bad[1], 0x6420);
            valid[1] = keep_bytes(bad[2], bad[3], 0x6420);
        }
        c[0] = c[2];
        c[1] = c[3];
        u32 mean[4], degree[4], turns[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const u32 s1 = a[0][k] - a[2][k] + 0x20002000u, s2 = a[1][k] - a[3][k] + 0x20002000u;
            const Polar l = polar<0>(s1, s2, sum[k]), h = polar<1>(s1, s2, sum[k]);
            mean[k] = sum[k] * 4u + 0x00800080u;  // 256 levels, and a half to round
            if (OUT_DOLP) degree[k] = fma(pair(l.degree, h.degree), PAIR(255), PAIR(1024));
            if (OUT_AOLP) turns[k] = turns_256(pair(l.tangent, h.tangent), sign_of(s1));
        }
        if (!inside) break;
        if (OUT_INTENSITY) store64((u8*)frame.out[INTENSITY] + base + index, permute(mean[0], mean[1], 0x7531), permute(mean[2], mean[3], 0x7531));
        if (OUT_DOLP) store64((u8*)frame.out[DOLP] + base + index, permute(degree[0], degree[1], 0x6420) & valid[0], permute(degree[2], degree[3], 0x6420) & valid[1]);
        if (OUT_AOLP) store64((u8*)frame.out[AOLP] + base + index, permute(turns[0], turns[1], 0x6420) & valid[0], permute(turns[2], turns[3], 0x6420) & valid[1]);
    }
    count_invalid(frame, count);
}
