// Mono, half resolution, with a calibration: every format, every product but colors by maps and those that depend on
// noise; angles co-sited (bilinear), or each at its own site. The width is a multiple of 8 and the height is even. More
// than twice as fast as `tile` on an H200: intensity, DoLP and AoLP in bytes take 5.4 us.
//
// The lanes of a warp stand side by side, each on four superpixels, and move down ROWS rows; the outermost lanes only
// give their neighbors what co-siting needs, and the chunks of four superpixels of all strips are numbered on. A pixel
// is corrected by its own superpixel (`mono_half_correct.cuh`), and so a strip begins and ends one row of superpixels
// further out. Loading is a row ahead.
//
// Values are pairs of neighboring superpixels. Each of the four angles is moved to the superpixel's center by the
// weights 9 3 / 3 1, as 3a + b down and then along, which are not divided: full scale is then 16.
#define UNIT_LEVELS (CO_SITED ? 15.9375f : 255.0f)
#include "mono_half_correct.cuh"

// ROWS: of superpixels of a strip. BLOCKS: of a multiprocessor, for which registers must suffice.
constexpr int BLOCKS = RESIDENT / THREADS;
static_assert(!COLOR && HALF_RESOLUTION && CALIBRATED && (!CO_SITED || DEMOSAIC == METHOD_BILINEAR) && PIXELS == 4 &&
                  WIDTH % 8 == 0 && HEIGHT % 2 == 0,
              "see KERNELS in polar_pipeline/backends/cuda/polarization.py");

// Selectors of `permute`: of neighbors in two pairs of half, and where reflection puts a lane's own value there.
constexpr u32 BESIDE = 0x5432, MIRRORED_LEFT = 0x5454, MIRRORED_RIGHT = 0x3232;
constexpr int LANES = 30; // of a warp, that store what they make
constexpr int ACROSS = OUT_WIDTH / PIXELS, CHUNKS = ACROSS * ((OUT_HEIGHT + ROWS - 1) / ROWS);

// Where a lane works: its first superpixel; whether it stores; and how it takes the neighbors of its row: from the
// lanes beside it, or at the picture's border from its own, by reflection.
struct LanePosition {
  int y, x;
  bool stores;
  u32 from_left, from_right; // selectors
};
DEVICE LanePosition lane_position(int block) {
  const int lane = threadIdx.x % 32, number = (block * (THREADS / 32) + threadIdx.x / 32) * LANES + lane - 1;
  const int chunk = nearest_index(number, CHUNKS), strip = chunk / ACROSS, column = chunk - strip * ACROSS;
  return LanePosition{strip * ROWS, column * PIXELS, lane > 0 && lane <= LANES && number < CHUNKS,
                      column == 0 ? MIRRORED_LEFT : BESIDE, column == ACROSS - 1 ? MIRRORED_RIGHT : BESIDE};
}

// Values one superpixel to the left of each of a lane's first pair, and to the right of each of its last one. left: the
// last pair of the lane there; right: the first one.
#if HALF_PRECISION
DEVICE Pair of_left_lane(Pair own) { return shuffle_up(own, 1); }
DEVICE Pair of_right_lane(Pair own) { return shuffle_down(own, 1); }
DEVICE Pair beside_left(const LanePosition &at, Pair left, Pair own) { return permute(left, own, at.from_left); }
DEVICE Pair beside_right(const LanePosition &at, Pair own, Pair right) { return permute(own, right, at.from_right); }
#else
DEVICE Pair of_left_lane(Pair own) { return Pair{0, as_float(shuffle_up(as_bits(own.y), 1))}; }
DEVICE Pair of_right_lane(Pair own) { return Pair{as_float(shuffle_down(as_bits(own.x), 1)), 0}; }
DEVICE Pair beside_left(const LanePosition &at, Pair left, Pair own) {
  return Pair{at.from_left == MIRRORED_LEFT ? own.x : left.y, own.x};
}
DEVICE Pair beside_right(const LanePosition &at, Pair own, Pair right) {
  return Pair{own.y, at.from_right == MIRRORED_RIGHT ? own.y : right.x};
}
#endif

// 3a + b
DEVICE Pair three_to_one(Pair a, Pair b) { return fma(a, splat(3), b); }

// The angles of a row of superpixels, moved to their centers. ROW: of the superpixel; own, other: the raw line of this
// row, and the one that it moves toward.
template <int ROW>
DEVICE void co_site(const LanePosition &at, const Pair (&own)[2][2], const Pair (&other)[2][2], Angles &angle) {
  Pair even[2], odd[2];
#pragma unroll
  for (int p = 0; p < 2; p++) {
    even[p] = three_to_one(own[0][p], other[0][p]);
    odd[p] = three_to_one(own[1][p], other[1][p]);
  }
  const Pair right = of_right_lane(even[0]), left = of_left_lane(odd[1]);
  Pair(&of_even)[2] = angle[0][angle_at(ROW, 0)], (&of_odd)[2] = angle[0][angle_at(ROW, 1)];
  of_even[0] = three_to_one(even[0], straddle(even[0], even[1]));
  of_even[1] = three_to_one(even[1], beside_right(at, even[1], right));
  of_odd[0] = three_to_one(odd[0], beside_left(at, left, odd[0]));
  of_odd[1] = three_to_one(odd[1], straddle(odd[0], odd[1]));
}

// Corrects a row that was loaded; returns which of its superpixels are saturated.
DEVICE u32 take_row(const FrameArguments &frame, LoadedRow &loaded, CorrectedRow &row) {
  if (EXCEEDS) limit_lines(loaded.line);
  correct(frame, loaded, row);
  return saturated_superpixels(loaded);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) mono_half_calibrated(const FrameArguments frame) {
  const LanePosition at = lane_position(block_of_frame(frame, blockIdx.x));
  InvalidCount count = {0, 0};
  LoadedRow loaded;
  CorrectedRow above, row;
  if (CO_SITED) {
    load_row(frame, at.y - 1, 2 * at.x, loaded);
    take_row(frame, loaded, above);
  }
  load_row(frame, at.y, 2 * at.x, loaded);
  u32 saturated = take_row(frame, loaded, row);
  load_row(frame, at.y + 1, 2 * at.x, loaded);
#pragma unroll(IN_HALVES ? 2 : 1)
  for (int i = 0; i < ROWS; i++) {
    CorrectedRow below;
    const u32 saturated_below = i + 1 < ROWS + REACH_Y ? take_row(frame, loaded, below) : 0;
    if (i + 2 < ROWS + REACH_Y) load_row(frame, at.y + i + 2, 2 * at.x, loaded);
    Angles angle;
    if (CO_SITED) {
      co_site<0>(at, row.at[0], below.at[0], angle);
      co_site<1>(at, row.at[1], above.at[1], angle);
    } else {
#pragma unroll
      for (int k = 0; k < 8; k++) angle[0][angle_at(k / 4, k / 2 % 2)][k % 2] = row.at[k / 4][k / 2 % 2][k % 2];
    }
    if (at.stores && at.y + i < OUT_HEIGHT) store_products(frame, angle, saturated, at.y + i, at.x, count);
    above = row;
    row = below;
    saturated = saturated_below;
  }
  count_invalid(frame, count);
}
