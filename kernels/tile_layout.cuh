// What `tile` is compiled for, and what a block keeps in shared memory.
#pragma once
#include "products.cuh"

// TILE_X, TILE_Y: raw pixels of a block. ROWS: that a thread computes one after the other in ADR's stage A.
#define RESTORES (!HALF_RESOLUTION || CO_SITED) // whether missing angles are interpolated at all
#define ADAPTIVE (RESTORES && DEMOSAIC == METHOD_ADAPTIVE)
// Launch bounds: threads of a block, and blocks for which registers must suffice. The Jetsons need it for 30 %
// occupancy; from sm_90 on ADR takes a fifth longer with it.
#if __CUDA_ARCH__ >= 900
#define BOUNDS THREADS
#else
#define BOUNDS THREADS, (RESIDENT + THREADS - 1) / THREADS
#endif
CONSTANT int multiple_of_4(int n) { return (n + 3) / 4 * 4; }

// The completed mosaic, with the halo that interpolation reads; per channel.
constexpr int HALO_Y = REACH, HALO_X = multiple_of_4(REACH);
constexpr int MOSAIC_Y = TILE_Y + 2 * HALO_Y, MOSAIC_P = (TILE_X + 2 * HALO_X) / 2;
// The raw tile, with the halo that completing the colors reads.
constexpr int EDGE_Y = HALO_Y + LATTICE_REACH, EDGE_X = HALO_X + multiple_of_4(LATTICE_REACH);
constexpr int RAW_Y = TILE_Y + 2 * EDGE_Y, RAW_P = (TILE_X + 2 * EDGE_X) / 2;
// ADR's planes that neighbors are read from. Stage A reaches one pixel beyond the tile, gradients two.
constexpr int PLANE_Y = TILE_Y + 4, PLANE_P = TILE_X / 2 + 4; // of two pairs on either side, the inner ones are used
constexpr int TILE_P = TILE_X / 2;
static_assert(TILE_X % 8 == 0 && TILE_Y % 4 == 0, "tiles consist of complete color tiles");

// Item i of LINES lines of COLUMNS that threads work on. Neighboring threads of a GROUP, as many as one access to
// shared memory serves, have neighboring columns of one line, or their accesses would fall into the same banks: first
// come the columns of whole groups, then the rest of every line.
struct Item {
  int line, column;
};
template <int LINES, int COLUMNS, int GROUP> DEVICE Item item(int i) {
  constexpr int GROUPED = COLUMNS / GROUP * GROUP, REST = COLUMNS - GROUPED;
  if (GROUPED == 0 || REST == 0) return Item{i / COLUMNS, i % COLUMNS};
  if (i < LINES * GROUPED) return Item{i / GROUPED, i % GROUPED};
  const int k = i - LINES * GROUPED;
  return Item{k / REST, GROUPED + k % REST};
}
constexpr int GROUP_OF_PAIRS = 32, GROUP_OF_QUADS = 16; // threads that one access of 4 or of 8 bytes serves

// Which pixels are saturated: four bits for four pixels, with a border of one pixel (along x: of four)
constexpr int SATURATED_Y = TILE_Y + 2, SATURATED_QUADS = TILE_X / 4 + 2;
typedef u8 Saturation[SATURATED_Y][SATURATED_QUADS];

struct Shared {
  Pair mosaic[CHANNELS][MOSAIC_Y][MOSAIC_P];
  union {
#if COLOR
    struct {
      Pair raw[RAW_Y][RAW_P];
#if DEBAYER == LATTICE_WEIGHTED
      Pair green[RAW_Y][RAW_P];
#endif
    } lattice;
#endif
#if ADAPTIVE
    struct {
      Pair interpolated[TILE_Y][TILE_P]; // 2 (1 - switch)
      union {
        struct {
          Pair energy[PLANE_Y][PLANE_P], difference[PLANE_Y][PLANE_P];
        } gradient; // until the switch is known
        struct {
          Pair excess[PLANE_Y][PLANE_P], detail[PLANE_Y][PLANE_P];
          Pair energy[TILE_Y][TILE_P];                                                // of the polarization
          Pair row[TILE_Y][TILE_P], column[TILE_Y][TILE_P], diagonal[TILE_Y][TILE_P]; // what each missing angle gets
        } stage[CHANNELS];
      };
    } adaptive;
#endif
    u32 unused; // so that the union is never empty
  };
  Saturation saturated;
  u32 counts[2];
};
static_assert(sizeof(Shared) <= SHARED_BYTES, "the schedule reserves too little shared memory");
