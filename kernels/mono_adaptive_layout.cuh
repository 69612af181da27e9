// What `mono_adaptive` is compiled for, and what a block keeps in shared memory.
//
// A tile is cut into an upper and a lower half, and the two lanes of a pair are the same pixel of both: neighbours
// along x are other words, so that nothing straddles two words, and both lanes have the same place in the mosaic.
#ifndef POLAR_MONO_ADAPTIVE_LAYOUT_CUH
#define POLAR_MONO_ADAPTIVE_LAYOUT_CUH
#include "products.cuh"
#include "raw.cuh"
#include "saturation.cuh"

#ifndef ROWS
#define ROWS 9 // rows that a thread computes one after the other in stage A
#endif
static_assert(!COLOR && !HALF_RESOLUTION && DEMOSAIC == METHOD_ADAPTIVE && !CALIBRATED && HALF_PRECISION,
              "mono, full resolution, adaptive, no calibration, half precision");
static_assert(TILE_X % 4 == 0 && TILE_Y % 4 == 0, "both halves of a tile have even rows, and quads of columns");

constexpr int HALF_Y = TILE_Y / 2; // rows of a half
// The mosaic with its halo.
constexpr int HALO = 4;
constexpr int MOSAIC_Y = HALF_Y + 2 * HALO, MOSAIC_X = TILE_X + 2 * HALO;
constexpr int MOSAIC_WORDS = MOSAIC_Y * MOSAIC_X;
constexpr int PAD = 4; // words around the mosaic, which the windows of columns that are not used reach into
// Planes that neighbours are read from: two pixels around the tile, of which stage A makes one.
constexpr int PLANE_Y = HALF_Y + 4, PLANE_X = TILE_X + 4;
// Pairs of columns, with one beside the tile on either side; a thread computes one of them.
constexpr int COLUMNS = TILE_X / 2 + 2;
// Runs of rows that threads go down side by side, as many in every pass.
constexpr int RUNS = (HALF_Y + 2 + ROWS - 1) / ROWS;
// Rows in the bodies of loops. A window of as many lines slides without moves of registers; with more rows the loops of
// all passes do not fit the instruction cache.
constexpr int GRADIENT_UNROLL = 4, EDGE_UNROLL = 3, DETAIL_UNROLL = 2, ANGLE_UNROLL = 2;
// Whether runs of all rows of a pass consist of bodies of `body` rows.
CONSTANT bool is_multiple(int rows, int body) { return rows % (RUNS * body) == 0; }

struct alignas(16) FourWords {
  Pair v[4];
};
typedef Pair Own[HALF_Y][TILE_X];     // what only the pixel itself needs
typedef Pair Plane[PLANE_Y][PLANE_X]; // what its neighbours need
typedef Pair Mosaic[PAD + MOSAIC_WORDS + PAD];

struct Shared {
  Mosaic mosaic;
  union {
    struct {
      Plane energy, difference;
    } gradient; // until the switch is known
    struct {
      Plane excess, detail;
    } stage;
  };
  Own interpolated; // 2 (1 - switch)
  Own energy;       // of the polarization
  // 2 (secant step + 1/4) along x and along y; then what each missing angle gets from stage A; then the angle
  Own row, column, diagonal;
  Saturation saturated;
  u32 counts[2];
  u32 any_saturated; // here rather than in a register
};
#ifdef SHARED_BYTES
static_assert(sizeof(Shared) <= SHARED_BYTES, "the schedule reserves too little shared memory");
#endif

// The first of two columns that a thread works on, at row y of a half; (y, x) in pixels of the tile, x even.
DEVICE const Pair *mosaic_at(const Mosaic &mosaic, int y, int x) {
  return mosaic + PAD + (y + HALO) * MOSAIC_X + x + HALO;
}
// N words at a pointer to an even column
template <int N> DEVICE void read(const Pair *p, Pair (&v)[N]) {
#pragma unroll
  for (int k = 0; k < N; k += 2) {
    const Quad q = *(const Quad *)(p + k);
    v[k] = q.a;
    v[k + 1] = q.b;
  }
}
// p: at a multiple of four columns
DEVICE FourWords four_words(const Pair *p) { return *(const FourWords *)p; }
DEVICE void write(Pair *p, Pair a, Pair b) { *(Quad *)p = Quad{a, b}; }

// Padding of the mosaic: read with windows of columns that are not used, and never part of a result.
DEVICE void clear_padding(Shared &s) {
  if (threadIdx.x < 2 * PAD) s.mosaic[threadIdx.x < PAD ? threadIdx.x : threadIdx.x + MOSAIC_WORDS] = splat(0);
}
#endif
