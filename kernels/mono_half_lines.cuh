// What a thread of `mono_half` or `mono_half_calibrated` reads: raw lines of PIXELS superpixels, of every format, at
// every alignment of rows.
#pragma once
#include "products.cuh"
#include "raw.cuh"

constexpr int PIXELS = TILE_X;                    // superpixels of a thread along x
constexpr bool IS_PACKED = RAW_FORMAT >= RAW_12P; // two pixels in three bytes
static_assert(PIXELS == 4 || PIXELS == 8, "4 or 8 superpixels a thread");
static_assert(WIDTH / 2 >= PIXELS && HEIGHT >= 2, "the picture is smaller than what a thread takes");
static_assert(RAW_FORMAT == RAW_U16 || FULL_SCALE == (RAW_FORMAT == RAW_U8 ? 255 : 4095), "full scale of the format");

// Bytes of `pixels` raw pixels, an even number, and of a row.
CONSTANT int bytes_of(int pixels) { return IS_PACKED ? pixels / 2 * 3 : pixels * (RAW_FORMAT == RAW_U16 ? 2 : 1); }
constexpr int ROW_BYTES = RAW_FORMAT == RAW_12P        ? (WIDTH * 3 + 1) / 2
                          : RAW_FORMAT == RAW_12PACKED ? (WIDTH + 1) / 2 * 3
                                                       : WIDTH * (RAW_FORMAT == RAW_U16 ? 2 : 1);
constexpr int LINE_BYTES = bytes_of(2 * PIXELS), LINE_WORDS = LINE_BYTES / 4;

// Threads begin at multiples of PIXELS, the last one of a row where it ends with the row.
constexpr int RAW_ALIGNMENT = alignment_of(ROW_BYTES | bytes_of(WIDTH / 2 * 2), LINE_BYTES);

// The numbers of one superpixel on one line: two 16-bit lanes, the even column in the low one; or two words.
struct Lanes {
  u32 both;
};
struct Words {
  u32 even, odd;
};
#if CO_SITED && FULL_SCALE >= 4096 // 16 times a number does not fit 16 bits
typedef Words Site;
#else
typedef Lanes Site;
#endif

DEVICE void set_site(Lanes &site, u32 lanes) { site.both = lanes; }
DEVICE void set_site(Words &site, u32 lanes) {
  site.even = lanes & 0xffff;
  site.odd = lanes >> 16;
}
DEVICE void set_even(Lanes &site, u32 number) { site.both = number; }
DEVICE void set_even(Words &site, u32 number) { site.even = number; }
DEVICE void set_odd(Lanes &site, u32 number) { site.both = number << 16; }
DEVICE void set_odd(Words &site, u32 number) { site.odd = number; }
// 3a + b, which moves a line or a column by a quarter of the distance of two
DEVICE Lanes three_to_one(Lanes a, Lanes b) { return Lanes{3u * a.both + b.both}; }
DEVICE Words three_to_one(Words a, Words b) { return Words{3u * a.even + b.even, 3u * a.odd + b.odd}; }
// what the columns of a superpixel move toward: the even one to the right, the odd one to the left
DEVICE Lanes beside(Lanes left, Lanes right) { return Lanes{permute(right.both, left.both, 0x7610)}; }
DEVICE Words beside(Words left, Words right) { return Words{right.even, left.odd}; }
// The number of a column as a float above 2^23, whose last bit is the unit.
constexpr float OFFSET = 8388608;
constexpr u32 OFFSET_BITS = 0x4B000000;
template <int ODD> DEVICE u32 offset_bits(Lanes site) { return permute(site.both, OFFSET_BITS, ODD ? 0x7632 : 0x7410); }
template <int ODD> DEVICE u32 offset_bits(Words site) { return (ODD ? site.odd : site.even) | OFFSET_BITS; }

// One raw line of a thread, and where angles are interpolated its neighbors on either side.
struct Line {
  u32 w[LINE_WORDS], left = 0, right = 0;
};

// Words at an address of which RAW_ALIGNMENT is known. No byte outside of them is read.
DEVICE void load_words(const u8 *p, u32 (&w)[LINE_WORDS]) {
  if (RAW_ALIGNMENT >= 4) {
    load_pieces<RAW_ALIGNMENT, LINE_BYTES>(p, w);
  } else { // aligned words, moved; of the last one bytes, since it may end beyond the frame
    const u32 shift = (u64)p & 3, selector = 0x3210 + 0x1111 * shift;
    const u8 *q = p - shift;
    u32 words[LINE_WORDS + 1], rest = 0;
#pragma unroll
    for (int k = 0; k < LINE_WORDS; k++) words[k] = load32(q + 4 * k);
#pragma unroll
    for (int k = 0; k < 3; k++)
      if (k < (int)shift) rest |= load8(q + LINE_BYTES + k) << 8 * k;
    words[LINE_WORDS] = rest;
#pragma unroll
    for (int k = 0; k < LINE_WORDS; k++) w[k] = permute(words[k], words[k + 1], selector);
  }
}

// the number at one pixel of a row
DEVICE u32 number_at(const u8 *row, int x) { return RAW_FORMAT == RAW_U16 ? load16(row + 2 * x) : raw_pixel(row, x); }

// Lines y - REACH_Y .. of a thread, COUNT of them: reflect-101. All loads come first. Inner lines are at constant
// offsets from the first one.
constexpr int REACH_Y = CO_SITED ? 1 : 0;
template <int COUNT> DEVICE void load_lines(const FrameArguments &frame, int y, int x, Line (&lines)[COUNT]) {
  const u8 *first = frame.raw + blockIdx.z * frame.raw_stride + (size_t)y * ROW_BYTES;
  const int left = x == 0 ? 1 : x - 1, right = x + 2 * PIXELS < WIDTH ? x + 2 * PIXELS : WIDTH - 2;
#pragma unroll
  for (int k = 0; k < COUNT; k++) {
    int at = k - REACH_Y;
    if (at < 0 && y == 0) at = 1;
    const bool may_end = k >= COUNT - REACH_Y || HEIGHT % (COUNT - 2 * REACH_Y) != 0;
    if (at > 0 && may_end && y + at >= HEIGHT) at = HEIGHT - 1 - ((HEIGHT - 1 - (y + at)) & 1) - y;
    const u8 *row = first + at * ROW_BYTES;
    load_words(row + bytes_of(x), lines[k].w);
    if (CO_SITED) {
      lines[k].left = number_at(row, left);
      lines[k].right = number_at(row, right);
    }
  }
}

// Superpixel k of a line as two lanes.
DEVICE u32 lanes_of(const Line &line, int k) {
  if (RAW_FORMAT == RAW_U8) return permute(line.w[k / 2], 0u, k % 2 ? 0x4342 : 0x4140);
  if (RAW_FORMAT == RAW_U16) return line.w[k];
  const int word = 3 * k / 4, byte = 3 * k % 4; // the first of three bytes
  const u32 next = line.w[min(word + 1, LINE_WORDS - 1)];
  if (RAW_FORMAT == RAW_12P) {
    const u32 v = permute(line.w[word], next, 0x0210 + 0x0111 * byte);
    return (v & 0xfff) | (v << 4 & 0xfff0000);
  }
  const u32 high = permute(line.w[word], next, 0x0200 + 0x0101 * byte) & 0xff00ff; // bits of the outer bytes
  const u32 low = line.w[(3 * k + 1) / 4] >> (3 * k + 1) % 4 * 8;                  // and of the one between
  return high << 4 | (low & 15) | (low << 12 & 0xf0000);
}
DEVICE Site site_of(const Line &line, int k) {
  Site site;
  set_site(site, lanes_of(line, k));
  return site;
}

// Bits of BRIGHT are set where a number of a line is at full scale, none being above; other bits are to be ignored.
constexpr u32 BRIGHT = RAW_FORMAT == RAW_U8 ? BYTES_255 : 0x80008000u;
DEVICE u32 bright_lanes(u32 lanes) {
  if (FULL_SCALE < 0x8000) return lanes + (0x8000 - FULL_SCALE) * 0x10001;
  return ((lanes & 0x7fff7fff) + (0x10000 - FULL_SCALE) * 0x10001) & lanes;
}
DEVICE u32 bright_line(const Line &line) {
  u32 bright = 0;
#pragma unroll
  for (int k = 0; k < (RAW_FORMAT == RAW_U8 ? LINE_WORDS : PIXELS); k++)
    bright |= RAW_FORMAT == RAW_U8 ? has_255(line.w[k]) : bright_lanes(lanes_of(line, k));
  return bright;
}

// Bits of EXCESS are set where a 16-bit number of a line is above full scale; all other formats hold none.
constexpr bool IS_MASK = (FULL_SCALE & (FULL_SCALE + 1)) == 0; // of all bits that a number can have
constexpr u32 EXCESS = IS_MASK ? ~(FULL_SCALE * 0x10001u) : 0x80008000u;
DEVICE u32 excess_lanes(u32 lanes) {
  if (IS_MASK) return lanes;
  if (FULL_SCALE < 0x7fff) return ((lanes & 0x7fff7fff) + (0x7fff - FULL_SCALE) * 0x10001) | lanes;
  return ((lanes & 0x7fff7fff) + (0xffff - FULL_SCALE) * 0x10001) & lanes;
}
DEVICE u32 excess_line(const Line &line) {
  u32 excess = CO_SITED ? excess_lanes(line.left | line.right << 16) : 0;
#pragma unroll
  for (int k = 0; k < LINE_WORDS; k++) excess |= excess_lanes(line.w[k]);
  return excess;
}
// Numbers above full scale become full scale.
DEVICE void limit(Line &line) {
  line.left = min(line.left, (u32)FULL_SCALE);
  line.right = min(line.right, (u32)FULL_SCALE);
#pragma unroll
  for (int k = 0; k < LINE_WORDS; k++)
    line.w[k] = min(line.w[k] & 0xffff, (u32)FULL_SCALE) | min(line.w[k] >> 16, (u32)FULL_SCALE) << 16;
}
// Few threads have a number above full scale.
template <int COUNT> DEVICE void limit_lines(Line (&lines)[COUNT]) {
  u32 excess = 0;
#pragma unroll
  for (int k = 0; k < COUNT; k++) excess |= excess_line(lines[k]);
  if (!(excess & EXCESS)) return;
#pragma unroll
  for (int k = 0; k < COUNT; k++) limit(lines[k]);
}
