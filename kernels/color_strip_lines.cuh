// `color_strip`: where a warp works, its lines of the raw mosaic in a ring in shared memory, and lines of RGB images
// out.
#pragma once
#include "malvar.cuh"
#include "products.cuh"
#include "raw.cuh"

constexpr int SITES = TILE_X;
// Lanes of a warp that store their sites, and those on either side of them that only give three neighboring sites.
constexpr int BEYOND = SITES == 4 ? 1 : 2, LANES = 32 - 2 * BEYOND;
constexpr int WARPS = THREADS / 32;
constexpr int WIDTH_OUT = WIDTH / 2, HEIGHT_OUT = HEIGHT / 2;
constexpr int CHUNKS = WIDTH_OUT / SITES, STRIPS = (HEIGHT_OUT + ROWS - 1) / ROWS; // of a lane's sites, along x and y

// ---- samples

// Bytes as subnormal halves where that is possible: they need no arithmetic, but one multiplication cannot scale them
// to 1, so that a site's own sample is stored in [0, 1/2]. Else samples are scaled to [0, 1] as they are unpacked.
constexpr bool SUBNORMAL = RAW_FORMAT == RAW_U8 && HALF_PRECISION;
struct SampleScale {
  static constexpr double PER_SAMPLE = SUBNORMAL ? 1.0 / 255 / SUBNORMAL_UNIT : 1;
};
// What a value on a line of the lattice has to be multiplied with to be 1 at full scale.
template <int LINE> CONSTANT int unit_of(int site, int channel) {
  return SUBNORMAL && is_sample(0, LINE, site, channel) ? 2 : 1;
}

// A lane's raw pixels of one line, as they are packed.
constexpr int TWO_PIXELS = RAW_FORMAT == RAW_U8 ? 2 : RAW_FORMAT == RAW_U16 ? 4 : 3; // bytes
constexpr int LANE_BYTES = SITES * TWO_PIXELS, ROW_BYTES = WIDTH / 2 * TWO_PIXELS;
struct RawChunk {
  u32 word[(LANE_BYTES + 3) / 4];
};
DEVICE RawChunk load_chunk(const u8 *p) {
  RawChunk raw;
  load_pieces<alignment_of(LANE_BYTES, 0), LANE_BYTES>(p, raw.word);
  return raw;
}

// The raw number at a lane's k-th pixel.
DEVICE u32 number_at(const RawChunk &raw, int k) {
  if (RAW_FORMAT == RAW_U8) return raw.word[k / 4] >> (8 * (k % 4)) & 255;
  if (RAW_FORMAT == RAW_U16) return raw.word[k / 2] >> (16 * (k % 2)) & 0xffff;
  const int byte = k / 2 * 3, at = byte % 4; // of the three that hold two pixels
  const u32 low = raw.word[byte / 4], high = at > 1 ? raw.word[byte / 4 + 1] : 0;
  const u32 three = at > 1 ? permute(low, high, at == 2 ? 0x7432 : 0x6543) : low >> (8 * at);
  if (RAW_FORMAT == RAW_12P) return k % 2 ? three >> 12 & 0xfff : three & 0xfff;
  return k % 2 ? (three >> 16 & 255) << 4 | (three >> 12 & 15) : (three & 255) << 4 | (three >> 8 & 15);
}

// A lane's samples of a line; lanes of a pair are the two angles of a site.
struct alignas(SITES * sizeof(Pair) < 16 ? SITES * sizeof(Pair) : 16) Chunk {
  Pair site[SITES];
};
// How raw numbers become samples, and from which sample on they are saturated.
struct Scaling {
  float scale, saturated;
};
DEVICE Scaling scaling_of(const FrameArguments &frame) {
  const float scale = fast_rcp((float)frame.full_scale);
  return Scaling{scale, fmaf(-0.5f, scale, 1.0f)};
}
// one pixel as a float, limited to full scale; the number becomes the mantissa of a float
DEVICE float sample(const RawChunk &raw, int k, float scale) {
  constexpr float BIAS = 8388608;
  constexpr u32 BIAS_BITS = 0x4B000000;
  const u32 bits = RAW_FORMAT == RAW_U8    ? permute(raw.word[k / 4], BIAS_BITS, 0x7540 | k % 4)
                   : RAW_FORMAT == RAW_U16 ? permute(raw.word[k / 2], BIAS_BITS, k % 2 ? 0x7432 : 0x7410)
                                           : number_at(raw, k) | BIAS_BITS;
  return saturate(fmaf(as_float(bits), scale, -BIAS * scale));
}
// whether one of a site's samples is saturated, where samples are exact
#if HALF_PRECISION
DEVICE bool is_saturated(Pair site, const Scaling &) { return (site + 0x00010001u) & 0x01000100u; }
#else
DEVICE bool is_saturated(Pair site, const Scaling &scaling) { return fmaxf(site.x, site.y) > scaling.saturated; }
#endif
// Unpacks a lane's pixels; returns whether one of them is saturated.
DEVICE bool unpack(const RawChunk &raw, const Scaling &scaling, Chunk &chunk) {
#if HALF_PRECISION && RAW_FORMAT == RAW_U8
  u32 saturated = 0;
#pragma unroll
  for (int k = 0; k < SITES / 2; k++) {
    chunk.site[2 * k] = subnormal_bytes<0>(raw.word[k]);
    chunk.site[2 * k + 1] = subnormal_bytes<1>(raw.word[k]);
    saturated |= has_255(raw.word[k]);
  }
  return saturated & BYTES_255;
#else
  float highest = 0;
#pragma unroll
  for (int k = 0; k < SITES; k++) {
    const float a = sample(raw, 2 * k, scaling.scale), b = sample(raw, 2 * k + 1, scaling.scale);
    highest = fmaxf(highest, fmaxf(a, b));
    chunk.site[k] = pair(a, b);
  }
  return highest > scaling.saturated;
#endif
}

// ---- the ring

// Lines come in groups: two of either row parity. Of the upper rows they are SHIFT further down, since co-siting reads
// the line below of these, and the line above of the lower rows.
constexpr int SHIFT = CO_SITED ? 1 : 0, GROUPS = 3;
struct Group {
  alignas(16) Chunk line[2][2][32]; // [row parity][line][lane]
};
struct Ring {
  Quad before; // what the first lane reads to its left
  alignas(16) Group group[GROUPS];
  Quad after;
};
typedef Pair Sites[SITES + 4];   // sites -2 .. SITES + 1 of a line around a lane's
typedef Pair Colors[SITES][3];   // [site][red, green, blue]
typedef RawChunk RawGroup[2][2]; // [row parity][line]

// ---- images

// Bytes of RGB images are staged in shared memory, for a warp to store them in pieces side by side: as wide as they are
// aligned in every row.
constexpr int CHUNK_BYTES = 3 * SITES, STAGED = LANES * CHUNK_BYTES; // bytes of a row
constexpr int PIECE = SITES == 4 && WIDTH_OUT % 8 == 0 ? 8 : 4;
constexpr int PIECES = (2 * STAGED / PIECE + 31) / 32; // of a lane, in two rows
// Every lane stages, so that no branch parts what computes from what stages; the first byte that is stored is aligned.
constexpr int STAGE_START = SITES == 4 ? 16 : 12, STAGE_PITCH = SITES == 4 ? 392 : 192; // bytes
static_assert(STAGE_START >= BEYOND * CHUNK_BYTES && STAGE_PITCH >= STAGE_START + (LANES + BEYOND) * CHUNK_BYTES,
              "a staged row is longer than its memory");
typedef u32 StagedImage[2 * STAGE_PITCH / 4]; // two rows, one after the other

// Images of angles first, by angle, if there are any.
constexpr int INTENSITY_STAGE = WANT_ANGLES ? 4 : 0, PREVIEW_STAGE = INTENSITY_STAGE + (OUT_INTENSITY == 1);
constexpr int STAGED_IMAGES = PREVIEW_STAGE + OUT_PREVIEW;
struct WarpShared {
  Ring ring;
  alignas(8) StagedImage stage[STAGED_IMAGES ? STAGED_IMAGES : 1];
};
struct Shared {
  WarpShared warp[WARPS];
};

// Where a lane works.
struct LanePosition {
  int lane, x, y;      // first site, first row of its strip
  bool first, last;    // in its row of the picture
  bool stores;         // whether its sites are its own
  bool is_edge;        // whether a lane of the warp is first or last
  u32 pixel;           // its first pixel in its frame's images
  u32 piece[PIECES];   // where its pieces of the warp's two rows go in an RGB image
  int piece_y[PIECES]; // in which row
  bool has[PIECES];    // whether there is such a piece
};

DEVICE LanePosition lane_position(int first_chunk) {
  LanePosition at;
  at.lane = threadIdx.x % 32;
  const int chunk = nearest_index(first_chunk + at.lane - BEYOND, CHUNKS * STRIPS), strip = chunk / CHUNKS;
  at.x = (chunk - strip * CHUNKS) * SITES;
  at.y = strip * ROWS;
  at.first = at.x == 0;
  at.last = at.x == WIDTH_OUT - SITES;
  at.is_edge = any_in_warp(at.first || at.last);
  at.stores = at.lane >= BEYOND && at.lane < BEYOND + LANES && first_chunk + at.lane - BEYOND < CHUNKS * STRIPS;
  at.pixel = at.y * WIDTH_OUT + at.x;
#pragma unroll
  for (int i = 0; i < PIECES; i++) {
    const int k = at.lane + 32 * i, row = k >= STAGED / PIECE, byte = PIECE * (k - row * (STAGED / PIECE));
    const int owner = first_chunk + byte / CHUNK_BYTES, strip_of_owner = owner / CHUNKS;
    at.piece_y[i] = strip_of_owner * ROWS + row;
    at.piece[i] =
        at.piece_y[i] * (3 * WIDTH_OUT) + (owner - strip_of_owner * CHUNKS) * CHUNK_BYTES + byte % CHUNK_BYTES;
    at.has[i] = k < 2 * STAGED / PIECE && owner < CHUNKS * STRIPS;
  }
  return at;
}
constexpr bool EVEN_OUT = HEIGHT_OUT % ROWS == 0; // whether all rows of all strips are in the picture
DEVICE bool has_row(const LanePosition &at, int row) { return EVEN_OUT || at.y + row < HEIGHT_OUT; }

// The bytes of a lane's sites in one row of an image.
struct RowBytes {
  u32 word[(CHUNK_BYTES + 3) / 4];
};
// The first byte of a lane's sites in a staged image.
DEVICE int staged_byte(int row, const LanePosition &at) {
  return row * STAGE_PITCH + STAGE_START + (at.lane - BEYOND) * CHUNK_BYTES;
}
DEVICE void stage_row(StagedImage &image, int row, const LanePosition &at, const RowBytes &bytes) {
  u8 *const to = (u8 *)image + staged_byte(row, at);
  if (SITES == 4) {
#pragma unroll
    for (int k = 0; k < 3; k++) ((u32 *)to)[k] = bytes.word[k < (CHUNK_BYTES + 3) / 4 ? k : 0];
  } else {
    ((u16 *)to)[0] = (u16)bytes.word[0];
    ((u16 *)to)[1] = (u16)(bytes.word[0] >> 16);
    ((u16 *)to)[2] = (u16)bytes.word[1];
  }
}
// step: rows that the warp has moved down
DEVICE void store_staged(const StagedImage &image, u8 *to, const LanePosition &at, int step) {
#pragma unroll
  for (int i = 0; i < PIECES; i++) {
    if (!at.has[i] || !(EVEN_OUT || at.piece_y[i] + step < HEIGHT_OUT)) continue;
    const int k = at.lane + 32 * i, row = k >= STAGED / PIECE;
    const int word = (row * (STAGE_PITCH - STAGED) + STAGE_START + k * PIECE) / 4;
    store_staged_piece<PIECE>(to + at.piece[i] + step * (3 * WIDTH_OUT), image + word);
  }
}
