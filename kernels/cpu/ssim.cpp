// The second pass on a CPU: structural similarity (Wang et al., 2004) of two images, and sums of its blocks.
//
// Works on the sum p and the difference q of the images: four moments suffice, and the small difference loses the least. Tiles
// of 64 rows, whose sliding window of lines stays in the first-level cache: down the columns first, then along the line.
// `polar_pipeline/cpu/native.py` compiles it, and has the same structure field by field.
#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

const int BLOCK = SSIM_BLOCK;            // side of the blocks that are summed
const int PIECE = 3 * BLOCK;             // columns of a tile
const int MOST = 7;                      // largest radius of the window
const int LINE = PIECE + 2 * MOST + 2;   // floats of a line: a tile's columns, the window's on both sides

struct Similarity {
    const float *one, *other;  // in [0, 1]
    void* map;                 // (height, width); null: nobody asked for it
    int64_t bytes;             // whether it is in the uint8 display encoding, rather than float32
    double* sums;              // (rows of blocks, columns of blocks)
    int32_t step;              // floats from one row of the images to the next
    int32_t height, width;     // of the map
    int32_t stride;            // the images are averaged over this many pixels each way
    int32_t radius;            // of the window, 1 to MOST
    int32_t next;              // first tile that no thread has taken
    float taps[MOST + 1];      // of the window: both pixels k away from its centre
};

typedef float Line[LINE];

// Index of the pixel shown at `at`, however far beyond the border: mirrored, the first and the last one repeated.
inline int mirrored(int at, int size) {
    const int period = 2 * size;
    at = (at % period + period) % period;
    return at < size ? at : period - 1 - at;
}

// p and q of one row of the (averaged) images, columns first .. first + n.
void load_row(const Similarity& of, int y, int first, int n, float* __restrict p, float* __restrict q) {
    const int64_t at = ((int64_t)y * of.step + first) * of.stride;
    const float *__restrict one = of.one + at, *__restrict other = of.other + at;
    if (of.stride == 1) {
        for (int x = 0; x < n; x++) {
            p[x] = one[x] + other[x];
            q[x] = one[x] - other[x];
        }
        return;
    }
    const float share = 1.0f / (float)(of.stride * of.stride);
    for (int x = 0; x < n; x++) {
        float a = 0, b = 0;
        for (int row = 0; row < of.stride; row++)
            for (int column = 0; column < of.stride; column++) {
                const int64_t place = (int64_t)row * of.step + x * of.stride + column;
                a += one[place];
                b += other[place];
            }
        p[x] = (a + b) * share;
        q[x] = (a - b) * share;
    }
}

// Down the columns: means of p and q over 2 R + 1 lines, and of their squares.
template <int R>
void columns(const float* taps, const Line* p, const Line* q, int n, float* __restrict a, float* __restrict b, float* __restrict v,
             float* __restrict u) {
    for (int x = 0; x < n; x++) {
        const float pc = p[R][x], qc = q[R][x];
        float pm = taps[0] * pc, qm = taps[0] * qc, ps = taps[0] * (pc * pc), qs = taps[0] * (qc * qc);
#pragma GCC unroll 8
        for (int k = 1; k <= R; k++) {
            const float p0 = p[R - k][x], p1 = p[R + k][x], q0 = q[R - k][x], q1 = q[R + k][x];
            pm += taps[k] * (p0 + p1);
            qm += taps[k] * (q0 + q1);
            ps += taps[k] * (p0 * p0 + p1 * p1);
            qs += taps[k] * (q0 * q0 + q1 * q1);
        }
        a[x] = pm;
        b[x] = qm;
        v[x] = ps;
        u[x] = qs;
    }
}

template <int R> inline float along(const float* taps, const float* line) {
    float sum = taps[0] * line[R];
#pragma GCC unroll 8
    for (int k = 1; k <= R; k++) sum += taps[k] * (line[R - k] + line[R + k]);
    return sum;
}

// Along the line: the similarity from the four moments.
template <int R>
void line(const Similarity& of, const float* taps, const float* __restrict a, const float* __restrict b, const float* __restrict v,
          const float* __restrict u, int n, float* __restrict out) {
    const float c1 = 2 * SSIM_C1, c2 = 2 * SSIM_C2;
    for (int x = 0; x < n; x++) {
        const float pm = along<R>(taps, a + x), qm = along<R>(taps, b + x);
        const float pp = pm * pm, qq = qm * qm;
        const float pv = along<R>(taps, v + x) - pp, qv = along<R>(taps, u + x) - qq;
        // Numerator and denominator, both times 4.
        out[x] = ((pp - qq + c1) * (pv - qv + c2)) / ((pp + qq + c1) * (pv + qv + c2));
    }
}

template <int R> void tile(const Similarity& of, int top, int left) {
    const int rows = of.height - top < BLOCK ? of.height - top : BLOCK, n = of.width - left < PIECE ? of.width - left : PIECE;
    const int first = left < R ? 0 : left - R, end = left + n + R < of.width ? left + n + R : of.width;
    const int skipped = first - (left - R), lines = n + 2 * R;  // columns beyond the border; of a line
    float taps[R + 1];
    for (int k = 0; k <= R; k++) taps[k] = of.taps[k];
    Line p[BLOCK + 2 * R], q[BLOCK + 2 * R], moments[4], result, sum;
    for (int y = 0; y < rows + 2 * R; y++) load_row(of, mirrored(top - R + y, of.height), first, end - first, p[y], q[y]);
    std::memset(sum, 0, sizeof sum);
    for (int y = 0; y < rows; y++) {
        columns<R>(taps, p + y, q + y, end - first, moments[0] + skipped, moments[1] + skipped, moments[2] + skipped,
                   moments[3] + skipped);
        for (int k = 0; k < lines; k++) {
            if (k == skipped) k += end - first;
            if (k >= lines) break;
            const int from = mirrored(left - R + k, of.width) - (left - R);
            for (int m = 0; m < 4; m++) moments[m][k] = moments[m][from];
        }
        float* to = of.map && !of.bytes ? (float*)of.map + (int64_t)(top + y) * of.width + left : result;
        line<R>(of, taps, moments[0], moments[1], moments[2], moments[3], n, to);
        for (int x = 0; x < n; x++) sum[x] += to[x];
        if (of.map && of.bytes) {
            uint8_t* __restrict out = (uint8_t*)of.map + (int64_t)(top + y) * of.width + left;
            for (int x = 0; x < n; x++) {
                const float clipped = to[x] < 0 ? 0.0f : to[x] < 1 ? to[x] : 1.0f;
                out[x] = (uint8_t)(int)(255 * clipped + 0.5f);
            }
        }
    }
    double* to = of.sums + (int64_t)(top / BLOCK) * ((of.width + BLOCK - 1) / BLOCK) + left / BLOCK;
    for (int x = 0; x < n; x += BLOCK) {
        double block = 0;
        for (int k = x; k < n && k < x + BLOCK; k++) block += sum[k];
        to[x / BLOCK] = block;
    }
}

}  // namespace

// Tiles that no other thread has taken, until none is left. Any number of threads may be here for one similarity.
extern "C" void similarity(Similarity* of) {
    typedef void (*Tile)(const Similarity&, int, int);
    static const Tile tiles[] = {tile<1>, tile<2>, tile<3>, tile<4>, tile<5>, tile<6>, tile<7>};
    const int across = (of->width + PIECE - 1) / PIECE, down = (of->height + BLOCK - 1) / BLOCK;
    for (;;) {
        const int taken = __atomic_fetch_add(&of->next, 1, __ATOMIC_RELAXED);
        if (taken >= across * down) return;
        tiles[of->radius - 1](*of, taken / across * BLOCK, taken % across * PIECE);
    }
}
