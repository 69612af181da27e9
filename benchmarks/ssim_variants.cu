// SSIM in the steps of a published study (naive, V1 to V4), one kernel behind one switch: VARIANT. All of them take two
// images of halves, mirror the border, compute in float and leave a float map and a sum per block. Not part of the
// product: benchmarks/ssim.py measures them beside kernels/ssim.cu.
#include "cuda.cuh"

// Values of VARIANT
#define NAIVE 0   // a tile a block; a moment at a time: clear, products, along x, along y, a barrier after each
#define LEAN 1    // V1: nothing is cleared, nothing copied, one barrier a moment
#define WIDE 2    // V2: wide, flat tiles; a thread makes COLUMNS neighbors
#define WINDOW 3  // V3: a warp marches down y; the lines' sums wait in registers, indexed when compiled: unrolled by 11
#define FLOW 4    // V4: the same, but partial sums move from register to register with the window: a small loop

#ifndef MOMENTS
#define MOMENTS 5  // x, y, x^2, xy, y^2; or 4: x, y, x^2+y^2, xy
#endif
#ifndef COLUMNS  // of a thread
#define COLUMNS (VARIANT < WIDE ? 1 : 2)
#endif
#ifndef ROWS  // of a block
#define ROWS (VARIANT < WIDE ? 32 : VARIANT == WIDE ? 8 : 64)
#endif
#ifndef AHEAD  // rows that are on their way (WINDOW, FLOW)
#define AHEAD 1
#endif
#ifndef LAPS  // rounds of 11 rows that the loop of WINDOW holds
#define LAPS 1
#endif
#ifndef BLOCKS  // that a multiprocessor must have registers for
#define BLOCKS 1
#endif

static_assert(MOMENTS == 4 || MOMENTS == 5, "four or five moments");
static_assert(SSIM_RADIUS == 5, "the study is about 11 taps");
static_assert(VARIANT < WINDOW || COLUMNS % 2 == 0, "pairs of columns");
static_assert(WIDTH % 2 == 0, "pairs of columns");

const int RADIUS = SSIM_RADIUS, TAPS = 2 * RADIUS + 1, REACH = 32 * COLUMNS;
const int THREADS = VARIANT < WINDOW ? 32 * ROWS : 32;

CONSTANT float tap(int k) {
    k = k < RADIUS ? RADIUS - k : k - RADIUS;
    return k == 0 ? SSIM_TAP_0 : k == 1 ? SSIM_TAP_1 : k == 2 ? SSIM_TAP_2 : k == 3 ? SSIM_TAP_3 : k == 4 ? SSIM_TAP_4 : SSIM_TAP_5;
}

DEVICE int mirrored(int k, int n) { return k < 0 ? -1 - k : k >= n ? 2 * n - 1 - k : k; }

DEVICE float moment(int m, float x, float y) {
    return m == 0 ? x : m == 1 ? y : m == 3 ? x * y : m == 4 ? y * y : MOMENTS == 4 ? x * x + y * y : x * x;
}

DEVICE float similarity(const float (&mean)[MOMENTS]) {
    float product = mean[0] * mean[1], energy = mean[0] * mean[0] + mean[1] * mean[1];
    float squares = MOMENTS == 4 ? mean[2] : mean[2] + mean[MOMENTS - 1];
    float above = (2 * product + SSIM_C1) * (2 * (mean[3] - product) + SSIM_C2);
    return above * fast_rcp((energy + SSIM_C1) * (squares - energy + SSIM_C2));
}

DEVICE float warp_sum(float value) {
#pragma unroll
    for (int lanes = 16; lanes; lanes /= 2) value += as_float(shuffle_down(as_bits(value), lanes));
    return value;
}

struct Images {
    const u16 *x, *y;
    float* map;
};

#if VARIANT < WINDOW
// ---- a tile a block

#define PITCH (REACH + 2 * RADIUS)
#define LINES (ROWS + 2 * RADIUS)

struct Shared {
    float x[LINES][PITCH], y[LINES][PITCH];
    float sums[VARIANT == NAIVE ? 1 : 2][LINES][REACH];  // along x, of one moment
    float product[VARIANT == NAIVE ? LINES : 1][PITCH];
    float parts[THREADS / 32];
};

DEVICE void load_tile(Shared& tile, const Images& images, int left, int top) {
    for (int k = threadIdx.x; k < LINES * PITCH; k += THREADS) {
        int row = k / PITCH, column = k % PITCH;
        int at = mirrored(top + row, HEIGHT) * WIDTH + mirrored(left + column, WIDTH);
        tile.x[row][column] = half2_low(load16(images.x + at));
        tile.y[row][column] = half2_low(load16(images.y + at));
    }
}

// COLUMNS + 2 RADIUS neighbors of a line
DEVICE void read(const float* line, float (&values)[COLUMNS + 2 * RADIUS]) {
    if (COLUMNS % 2 == 0) {
#pragma unroll
        for (int k = 0; k < COLUMNS + 2 * RADIUS; k += 2) {
            uint2 two = *(const uint2*)&line[k];
            values[k] = as_float(two.x), values[k + 1] = as_float(two.y);
        }
    } else {
#pragma unroll
        for (int k = 0; k < COLUMNS + 2 * RADIUS; ++k) values[k] = line[k];
    }
}

template <int M> DEVICE void along_x(const Shared& tile, float (&sums)[LINES][REACH]) {
    const bool PRODUCT = VARIANT == NAIVE && M == 3;  // it lies there, ready made
    for (int k = threadIdx.x; k < LINES * 32; k += THREADS) {
        int row = k / 32, column = COLUMNS * (k % 32);
        float x[COLUMNS + 2 * RADIUS], y[COLUMNS + 2 * RADIUS];
        read(PRODUCT ? &tile.product[VARIANT == NAIVE ? row : 0][column] : &tile.x[row][column], x);
        read(&tile.y[row][column], y);  // what is not used is not read
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            float sum = 0;
#pragma unroll
            for (int t = 0; t < TAPS; ++t) sum += tap(t) * (PRODUCT ? x[c + t] : moment(M, x[c + t], y[c + t]));
            sums[row][column + c] = sum;
        }
    }
}

// What NAIVE does before a moment
DEVICE void clear_and_multiply(Shared& tile, bool product) {
    for (int k = threadIdx.x; k < LINES * REACH; k += THREADS) tile.sums[0][k / REACH][k % REACH] = 0;
    if (product) {
        for (int k = threadIdx.x; k < LINES * PITCH; k += THREADS) {
            int row = k / PITCH, column = k % PITCH;
            tile.product[VARIANT == NAIVE ? row : 0][column] = tile.x[row][column] * tile.y[row][column];
        }
    }
    sync_block();
}

template <int M> DEVICE void mean_of(Shared& tile, int row, int column, float (&mean)[COLUMNS][MOMENTS]) {
    float (&sums)[LINES][REACH] = tile.sums[VARIANT == NAIVE ? 0 : M % 2];
    if (VARIANT == NAIVE) clear_and_multiply(tile, M == 3);
    along_x<M>(tile, sums);
    sync_block();
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
        mean[c][M] = 0;
#pragma unroll
        for (int t = 0; t < TAPS; ++t) mean[c][M] += tap(t) * sums[row + t][column + c];
    }
    if (VARIANT == NAIVE) sync_block();
}

DEVICE float similarities(Shared& tile, const Images& images) {
    int left = blockIdx.x * REACH, top = blockIdx.y * ROWS;
    int row = threadIdx.x / 32, column = COLUMNS * (threadIdx.x % 32);
    load_tile(tile, images, left - RADIUS, top - RADIUS);
    sync_block();
    float mean[COLUMNS][MOMENTS];
    mean_of<0>(tile, row, column, mean);
    mean_of<1>(tile, row, column, mean);
    mean_of<2>(tile, row, column, mean);
    mean_of<3>(tile, row, column, mean);
    if (MOMENTS == 5) mean_of<MOMENTS - 1>(tile, row, column, mean);
    float sum = 0;
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
        if (top + row < HEIGHT && left + column + c < WIDTH) {
            float value = similarity(mean[c]);
            store32(images.map + (top + row) * WIDTH + left + column + c, as_bits(value));
            sum += value;
        }
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) tile.parts[threadIdx.x / 32] = sum;
    sync_block();
    sum = 0;
    if (threadIdx.x == 0) {
        for (int k = 0; k < THREADS / 32; ++k) sum += tile.parts[k];
    }
    return sum;
}

#else
// ---- a warp a block marches down. Lines come as words, so they begin an even number of columns to the left.

#define MARGIN (RADIUS + 1)
#define WORDS (REACH / 2 + MARGIN)
#define SLOTS ((WORDS + 31) / 32)  // words of a lane

struct Shared {
    float x[2][2 * WORDS], y[2][2 * WORDS];  // this line and the one before, which slower lanes may still read
};

struct Words {
    u32 x[SLOTS], y[SLOTS];
};

typedef float Sums[MOMENTS][COLUMNS];

struct March {
    Shared& lines;
    Images images;
    int left, phase = 0;
    int place[SLOTS];  // of a lane's words in a row
    u32 order[SLOTS];  // mirrored pairs stand in reverse
    Words next[AHEAD];

    DEVICE March(Shared& memory, const Images& pair) : lines(memory), images(pair), left(blockIdx.x * REACH) {
#pragma unroll
        for (int k = 0; k < SLOTS; ++k) {
            int column = left - MARGIN + 2 * min((int)threadIdx.x + 32 * k, WORDS - 1), at = mirrored(column, WIDTH);
            place[k] = at == column ? at : at - 1;
            order[k] = at == column ? 0x3210 : 0x1032;
        }
    }

    // Words of a row, left for later
    DEVICE void fetch(int row, Words& words) {
        int start = mirrored(row, HEIGHT) * WIDTH;
#pragma unroll
        for (int k = 0; k < SLOTS; ++k) {
            words.x[k] = load32(images.x + start + place[k]);
            words.y[k] = load32(images.y + start + place[k]);
        }
    }

    DEVICE void spread(float* line, u32 word, u32 selector) {
        word = permute(word, word, selector);
        *(uint2*)line = make_uint2(as_bits(half2_low(word)), as_bits(half2_high(word)));
    }

    DEVICE void begin(int row) {
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) fetch(row + k, next[k]);
    }

    // Sums along x of a row that was fetched, while the next ones are on their way
    DEVICE void along_x(int row, Sums& sums) {
        phase ^= 1;
#pragma unroll
        for (int k = 0; k < SLOTS; ++k) {
            int word = threadIdx.x + 32 * k;
            if (word >= WORDS) continue;
            spread(&lines.x[phase][2 * word], next[0].x[k], order[k]);
            spread(&lines.y[phase][2 * word], next[0].y[k], order[k]);
        }
#pragma unroll
        for (int k = 1; k < AHEAD; ++k) next[k - 1] = next[k];
        fetch(row + AHEAD, next[AHEAD - 1]);
        sync_warp();
        float x[COLUMNS + 2 * MARGIN], y[COLUMNS + 2 * MARGIN];
#pragma unroll
        for (int k = 0; k < COLUMNS + 2 * MARGIN; k += 2) {
            uint2 a = *(const uint2*)&lines.x[phase][COLUMNS * threadIdx.x + k], b = *(const uint2*)&lines.y[phase][COLUMNS * threadIdx.x + k];
            x[k] = as_float(a.x), x[k + 1] = as_float(a.y), y[k] = as_float(b.x), y[k + 1] = as_float(b.y);
        }
#pragma unroll
        for (int m = 0; m < MOMENTS; ++m) {
            float values[COLUMNS + 2 * RADIUS];
#pragma unroll
            for (int k = 0; k < COLUMNS + 2 * RADIUS; ++k) values[k] = moment(m, x[k + 1], y[k + 1]);
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c) {
                sums[m][c] = tap(0) * values[c];
#pragma unroll
                for (int t = 1; t < TAPS; ++t) sums[m][c] += tap(t) * values[c + t];
            }
        }
    }

    DEVICE float store(int row, const Sums& sums) {
        float total = 0;
        if (row >= HEIGHT) return total;
#pragma unroll
        for (int c = 0; c < COLUMNS; c += 2) {
            int column = left + COLUMNS * threadIdx.x + c;
            float first[MOMENTS], second[MOMENTS];
#pragma unroll
            for (int m = 0; m < MOMENTS; ++m) first[m] = sums[m][c], second[m] = sums[m][c + 1];
            float a = similarity(first), b = similarity(second);
            if (column >= WIDTH) continue;
            store64(images.map + row * WIDTH + column, as_bits(a), as_bits(b));
            total += a + b;
        }
        return total;
    }
};

DEVICE float similarities(Shared& lines, const Images& images) {
    int top = blockIdx.y * ROWS;
    March march(lines, images);
    march.begin(top - RADIUS);
    float total = 0;
    if (VARIANT == WINDOW) {
        Sums window[TAPS];
#pragma unroll 1
        for (int base = 0; base < ROWS + 2 * RADIUS; base += LAPS * TAPS) {
#pragma unroll
            for (int k = 0; k < LAPS * TAPS; ++k) {
                int step = base + k;
                if (step >= ROWS + 2 * RADIUS) break;
                march.along_x(top - RADIUS + step, window[k % TAPS]);
                if (step < 2 * RADIUS) continue;
                Sums sums;
#pragma unroll
                for (int m = 0; m < MOMENTS; ++m) {
#pragma unroll
                    for (int c = 0; c < COLUMNS; ++c) {
                        sums[m][c] = tap(0) * window[(k + 1) % TAPS][m][c];
#pragma unroll
                        for (int t = 1; t < TAPS; ++t) sums[m][c] += tap(t) * window[(k + 1 + t) % TAPS][m][c];
                    }
                }
                total += march.store(top + step - 2 * RADIUS, sums);
            }
        }
    } else {
        Sums partial[TAPS] = {};  // the oldest first; the last one stays zero
#pragma unroll 1
        for (int step = 0; step < ROWS + 2 * RADIUS; ++step) {
            Sums line, sums;
            march.along_x(top - RADIUS + step, line);
#pragma unroll
            for (int m = 0; m < MOMENTS; ++m) {
#pragma unroll
                for (int c = 0; c < COLUMNS; ++c) {
                    sums[m][c] = partial[0][m][c] + tap(TAPS - 1) * line[m][c];
#pragma unroll
                    for (int t = 1; t < TAPS; ++t) partial[t - 1][m][c] = partial[t][m][c] + tap(TAPS - 1 - t) * line[m][c];
                }
            }
            if (step >= 2 * RADIUS) total += march.store(top + step - 2 * RADIUS, sums);
        }
    }
    return warp_sum(total);
}
#endif

#ifndef MEAN
// Grid: tiles along x, along y, frames. A block's sum goes to parts[frame][block].
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) ssim_variants(const u16* x, const u16* y, float* map, float* parts) {
    u64 frame = (u64)blockIdx.z * (WIDTH * HEIGHT);
    Images images = {x + frame, y + frame, map + frame};
    SHARED_MEMORY(memory);
    static_assert(sizeof(Shared) <= SHARED_BYTES, "the launch gives as much");
    float sum = similarities(*(Shared*)memory, images);
    if (threadIdx.x == 0) store32(parts + (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x, as_bits(sum));
}
#else
// A warp a frame: its parts, always in the same order.
extern "C" __global__ void __launch_bounds__(32) ssim_variants(const float* parts, float* means, int count) {
    float sum = 0;
    for (int k = threadIdx.x; k < count; k += 32) sum += as_float(load32(parts + blockIdx.x * count + k));
    sum = warp_sum(sum);
    if (threadIdx.x == 0) store32(means + blockIdx.x, as_bits(sum / (WIDTH * HEIGHT)));
}
#endif
