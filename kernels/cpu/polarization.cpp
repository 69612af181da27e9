// The first pass on a CPU: from the mosaic, or from four angle images, to every product that depends on one output
// pixel.
//
// Plain loops over short pieces of rows, all of whose values stay in the first-level cache, for the compiler to
// vectorise; a product that is not asked for is neither computed nor stored. `polar_pipeline/cpu/native.py` compiles
// it, and has the same structures field by field.
#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

const int PIECE = 512; // output pixels at a time: some twelve lines of floats in 32 KiB

// Where a product is stored; null data: it is not asked for.
struct Image {
  void *data;    // (height, width[, 3]) without gaps
  int64_t bytes; // whether it is in the uint8 display encoding, rather than float32
};

struct Products {
  Image angles[4]; // 0, 45, 90, 135 degrees
  Image intensity, stokes, dolp, aolp, preview;
  void *first;       // what SSIM compares, (height, width) float32: (I0 + I90)/2, or S0/2 if `second` is null
  void *second;      // (I45 + I135)/2
  int64_t is_uint16; // whether these two are uint16 instead: I0 + I90 and I45 + I135 in units of the angles
  int64_t width;     // output pixels of a row
  float scale;       // what one unit of an angle's intensity is of full scale
  float min_total;   // smallest sum of the four angles, in such units, that has a polarization; 0: no product needs it
};

struct Mosaic {
  const void *raw; // uint8, or uint16 if `is_wide`
  int64_t step;    // bytes from one row to the next
  int32_t is_wide;
  int32_t height, width; // raw pixels
  int32_t co_sited;      // every angle interpolated to the centre of its superpixel
  int32_t place[4];      // 2 row + column in the tile of 0, 45, 90, 135 degrees
  int32_t full_scale;    // of a saturated pixel; larger numbers mean this one
  int32_t next;          // first row of the output that no thread has taken
};

// Four images of some rows of the output.
struct Planes {
  const float *angles[4];   // 0, 45, 90, 135 degrees
  int64_t steps[4];         // floats from one row to the next
  const uint8_t *saturated; // (end - first, width), not 0 where a pixel is saturated; null if no pixel is
  int32_t first, end;       // their rows
};

struct Count {
  int64_t saturated, dark;
};

// ----------------------------------------------------------------------------------------------------------
// polarimetry

typedef float Line[PIECE];

// A float within [0, 2^22) as its nearest integer, modulo 256, ties to even: after adding 2^23, it is in the lowest
// bits.
inline uint8_t low_byte(float value) {
  const float shifted = value + 8388608.0f;
  uint32_t bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  return (uint8_t)bits;
}
inline float at_most(float value, float limit) { return value < limit ? value : limit; }

// `scale` times a line into one channel of an image of full scale 1.
void store(const Image &image, int64_t at, int n, const float *__restrict line, float scale) {
  if (!image.data) return;
  if (image.bytes) {
    uint8_t *__restrict out = (uint8_t *)image.data + at;
    const float levels = 255 * scale;
    for (int x = 0; x < n; x++) out[x] = low_byte(at_most(line[x] * levels, 255.0f));
  } else {
    float *__restrict out = (float *)image.data + at;
    for (int x = 0; x < n; x++) out[x] = line[x] * scale;
  }
}

// Sets invalid pixels to NaN, or 0 in the display encoding.
void mask(const Image &image, int64_t at, int n, int channels, const int32_t *__restrict invalid) {
  if (!image.data) return;
  if (image.bytes) {
    uint8_t *__restrict out = (uint8_t *)image.data + at;
    for (int x = 0; x < n; x++) out[x] = invalid[x] ? 0 : out[x];
  } else {
    float *__restrict out = (float *)image.data + at * channels;
    for (int x = 0; x < n; x++)
      for (int k = 0; k < channels; k++) out[channels * x + k] = invalid[x] ? NAN : out[channels * x + k];
  }
}

// The direction of (S1, S2), halved, in half turns: AoLP/pi in [0, 1).
inline float half_direction(float s1, float s2) {
  const float a = std::fabs(s1), b = std::fabs(s2);
  const float large = a > b ? a : b, small = a > b ? b : a;
  const float t = small / (large > 1e-30f ? large : 1e-30f), u = t * t;
  float part = t * (ATAN_1 + u * (ATAN_3 + u * (ATAN_5 + u * (ATAN_7 + u * ATAN_9))));
  part = b > a ? 0.5f - part : part;
  part = 0.5f * (s1 < 0 ? 1 - part : part);
  part = s2 < 0 ? 1 - part : part;
  return part < 1 ? part : 0.0f; // a full turn is the same as 0
}

inline float unit_range(float value) { return value < 0 ? 0.0f : at_most(value, 1.0f); }

// Hue `turn`, saturation `degree`, value `total` as RGB, by the pure hues of HSV's hexagon: red falls off around cyan,
// green and blue rise around their own corners.
void preview(uint8_t *__restrict out, int n, const float *__restrict total, const float *__restrict degree,
             const float *__restrict turn, float levels) {
  uint8_t red[PIECE], green[PIECE], blue[PIECE];
  for (int x = 0; x < n; x++) {
    const float value = at_most(total[x] * levels, 255.0f), color = value * degree[x], white = value - color;
    const float sixths = 6 * turn[x];
    red[x] = low_byte(white + color * unit_range(std::fabs(sixths - 3) - 1));
    green[x] = low_byte(white + color * unit_range(2 - std::fabs(sixths - 2)));
    blue[x] = low_byte(white + color * unit_range(2 - std::fabs(sixths - 4)));
  }
  for (int x = 0; x < n; x++) {
    out[3 * x] = red[x];
    out[3 * x + 1] = green[x];
    out[3 * x + 2] = blue[x];
  }
}

// Stores what SSIM compares.
void store_pair(const Products &to, int64_t at, int n, const float *__restrict straight,
                const float *__restrict diagonal) {
  if (to.is_uint16) {
    uint16_t *__restrict first = (uint16_t *)to.first + at, *__restrict second = (uint16_t *)to.second + at;
    for (int x = 0; x < n; x++) {
      first[x] = (uint16_t)(int32_t)straight[x];
      second[x] = (uint16_t)(int32_t)diagonal[x];
    }
  } else if (to.second) {
    float *__restrict first = (float *)to.first + at, *__restrict second = (float *)to.second + at;
    for (int x = 0; x < n; x++) {
      first[x] = straight[x] * (0.5f * to.scale);
      second[x] = diagonal[x] * (0.5f * to.scale);
    }
  } else if (to.first) {
    float *__restrict first = (float *)to.first + at;
    for (int x = 0; x < n; x++) first[x] = (straight[x] + diagonal[x]) * (0.25f * to.scale);
  }
}

// Counts saturated and dark pixels, and says whether there are any; only then `invalid` is filled.
bool find_invalid(const float *__restrict total, const int32_t *saturated, float min_total, int n,
                  int32_t *__restrict invalid, Count &count) {
  int dark = 0;
  for (int x = 0; x < n; x++) dark += total[x] < min_total;
  if (!dark && !saturated) return false;
  int saturated_count = 0;
  dark = 0;
  for (int x = 0; x < n; x++) {
    const int32_t is_saturated = saturated ? saturated[x] != 0 : 0, is_dark = total[x] < min_total;
    invalid[x] = is_saturated | is_dark;
    saturated_count += is_saturated;
    dark += is_dark & ~is_saturated;
  }
  count.saturated += saturated_count;
  count.dark += dark;
  return true;
}

// Every product of `n` pixels.
//
// `at` is their index in the output, `angles` their four intensities, `saturated` which of them are saturated (not 0);
// null if no pixel is.
void polarimetry(const Products &to, int64_t at, int n, const float *const angles[4], const int32_t *saturated,
                 Count &count) {
  for (int k = 0; k < 4; k++) store(to.angles[k], at, n, angles[k], to.scale);
  const float *__restrict i0 = angles[0], *__restrict i45 = angles[1], *__restrict i90 = angles[2],
                          *__restrict i135 = angles[3];
  Line straight, diagonal, total, s1, s2; // total: 2 S0
  for (int x = 0; x < n; x++) {
    straight[x] = i0[x] + i90[x];
    diagonal[x] = i45[x] + i135[x];
    total[x] = straight[x] + diagonal[x];
    s1[x] = i0[x] - i90[x];
    s2[x] = i45[x] - i135[x];
  }
  store(to.intensity, at, n, total, 0.25f * to.scale);
  store_pair(to, at, n, straight, diagonal);
  if (to.stokes.data) {
    float *__restrict out = (float *)to.stokes.data + 3 * at;
    for (int x = 0; x < n; x++) {
      out[3 * x] = total[x] * (0.5f * to.scale);
      out[3 * x + 1] = s1[x] * to.scale;
      out[3 * x + 2] = s2[x] * to.scale;
    }
  }
  Line degree, turn;
  if (to.dolp.data || to.preview.data) {
    const float tiny = 1e-9f / to.scale;
    for (int x = 0; x < n; x++) {
      const float s0 = 0.5f * total[x];
      degree[x] = at_most(std::sqrt(s1[x] * s1[x] + s2[x] * s2[x]) / (s0 > tiny ? s0 : tiny), 1.0f);
    }
    store(to.dolp, at, n, degree, 1.0f);
  }
  if (to.aolp.data || to.preview.data)
    for (int x = 0; x < n; x++) turn[x] = half_direction(s1[x], s2[x]);
  if (to.aolp.data && to.aolp.bytes) {
    uint8_t *__restrict out = (uint8_t *)to.aolp.data + at;
    for (int x = 0; x < n; x++) out[x] = low_byte(256 * turn[x]);
  } else if (to.aolp.data) {
    store(to.aolp, at, n, turn, 3.14159265f);
  }

  int32_t invalid[PIECE];
  const bool any = find_invalid(total, saturated, to.min_total, n, invalid, count);
  if (any) {
    mask(to.stokes, at, n, 3, invalid);
    mask(to.dolp, at, n, 1, invalid);
    mask(to.aolp, at, n, 1, invalid);
  }
  if (to.preview.data) {
    if (any)
      for (int x = 0; x < n; x++) degree[x] = invalid[x] ? 0.0f : degree[x];
    preview((uint8_t *)to.preview.data + 3 * at, n, total, degree, turn, 255 * 0.25f * to.scale);
  }
}

// ---------------------------------------------------------------------------------------------------------------
// mosaic

// Two raw pixels side by side, at any address; the first one is the low half (little endian).
template <class Raw> struct Pair;
template <> struct Pair<uint8_t> {
  typedef uint16_t __attribute__((aligned(1), may_alias)) Word;
  typedef uint16_t Sum;
};
template <> struct Pair<uint16_t> {
  typedef uint32_t __attribute__((aligned(2), may_alias)) Word;
  typedef uint32_t Sum;
};

// Row `y` mirrored about the first and the last one, which keeps the parity.
inline int mirrored(int y, int size) {
  y = y < 0 ? -y : y;
  return y < size ? y : 2 * (size - 1) - y;
}

// Sums down the columns, by their parity: 3 `near` + `far`, or `near` itself where `far` is null; of superpixels first
// - 1 .. first + n, the first of which is at index 0. Columns are mirrored about the first and the last one.
// LIMITED: numbers can be above full scale, and are limited to it.
template <class Raw, bool LIMITED>
void columns(const Raw *near, const Raw *far, int width, int first, int n, int32_t full_scale,
             typename Pair<Raw>::Sum *__restrict even, typename Pair<Raw>::Sum *__restrict odd) {
  typedef typename Pair<Raw>::Word Word;
  typedef typename Pair<Raw>::Sum Sum;
  const int bits = 8 * sizeof(Raw);
  const Sum full = (Sum)full_scale;
  const auto limited = [full](Sum value) -> Sum { return LIMITED && value > full ? full : value; };
  const Sum low = (Sum)((1ull << bits) - 1);
  const int from = first == 0, to = n + 2 - (2 * (first + n) + 2 > width); // complete superpixels
  const Word *a = (const Word *)(near + 2 * (first - 1 + from));
  if (far) {
    const Word *b = (const Word *)(far + 2 * (first - 1 + from));
    for (int x = 0; x < to - from; x++) {
      const Sum p = a[x], q = b[x];
      even[from + x] = (Sum)(3 * limited(p & low) + limited(q & low));
      odd[from + x] = (Sum)(3 * limited((Sum)(p >> bits)) + limited((Sum)(q >> bits)));
    }
  } else {
    for (int x = 0; x < to - from; x++) {
      even[from + x] = limited(a[x] & low);
      odd[from + x] = limited((Sum)(a[x] >> bits));
    }
  }
  if (from) odd[0] = odd[1];
  if (to < n + 2) {
    const int last = width - 1;
    const Sum own = limited(near[last]);
    even[n + 1] = width % 2 ? (Sum)(far ? 3 * own + limited(far[last]) : own) : even[n];
  }
}

// Co-sited: 3/4 and 1/4 of the two nearest samples along x, both times 4, as `columns` does it along y.
template <class Sum>
void centres(const Sum *__restrict even, const Sum *__restrict odd, int n, float *__restrict left,
             float *__restrict right) {
  for (int x = 0; x < n; x++) {
    left[x] = (float)(int32_t)(3 * (uint32_t)even[x + 1] + even[x + 2]);
    right[x] = (float)(int32_t)(3 * (uint32_t)odd[x + 1] + odd[x]);
  }
}

// Each sample at its own site.
template <class Sum>
void sites(const Sum *__restrict even, const Sum *__restrict odd, int n, float *__restrict left,
           float *__restrict right) {
  for (int x = 0; x < n; x++) {
    left[x] = (float)(int32_t)even[x + 1];
    right[x] = (float)(int32_t)odd[x + 1];
  }
}

// Sets `saturated` for each of `n` superpixels that has a saturated sample; returns false, and sets nothing, if no
// sample is saturated, which is the usual case.
template <class Raw>
bool find_saturated(const Raw *__restrict a, const Raw *__restrict b, int n, int32_t full_scale,
                    int32_t *__restrict saturated) {
  Raw peak = 0;
  for (int x = 0; x < 2 * n; x++) {
    const Raw larger = a[x] > b[x] ? a[x] : b[x];
    peak = larger > peak ? larger : peak;
  }
  if (peak < full_scale) return false;
  for (int x = 0; x < n; x++)
    saturated[x] = (a[2 * x] >= full_scale) | (a[2 * x + 1] >= full_scale) | (b[2 * x] >= full_scale) |
                   (b[2 * x + 1] >= full_scale);
  return true;
}

template <class Raw, bool LIMITED> void half_row(const Mosaic &from, const Products &to, int y, Count &count) {
  typedef typename Pair<Raw>::Sum Sum;
  const Raw *rows[4]; // 2y - 1 .. 2y + 2
  for (int k = 0; k < 4; k++)
    rows[k] = (const Raw *)((const char *)from.raw + mirrored(2 * y - 1 + k, from.height) * from.step);
  const int width = (int)to.width;
  for (int first = 0; first < width; first += PIECE) {
    const int n = width - first < PIECE ? width - first : PIECE;
    Sum even[PIECE + 2], odd[PIECE + 2];
    Line places[4];
    for (int row = 0; row < 2; row++) {
      const Raw *far = from.co_sited ? rows[row ? 0 : 3] : nullptr;
      columns<Raw, LIMITED>(rows[1 + row], far, from.width, first, n, from.full_scale, even, odd);
      (from.co_sited ? centres<Sum> : sites<Sum>)(even, odd, n, places[2 * row], places[2 * row + 1]);
    }
    int32_t saturated[PIECE];
    const bool any = find_saturated(rows[1] + 2 * first, rows[2] + 2 * first, n, from.full_scale, saturated);
    const float *angles[4];
    for (int k = 0; k < 4; k++) angles[k] = places[from.place[k]];
    polarimetry(to, (int64_t)y * width + first, n, angles, any ? saturated : nullptr, count);
  }
}

} // namespace

// Computes rows of the output that no other thread has taken, until all are taken. Any number of threads may work on
// one mosaic at the same time; each has its own count.
extern "C" void polarization_half(Mosaic *from, const Products *to, Count *count) {
  const int rows = 16, height = from->height / 2;
  const bool limited = from->full_scale < (from->is_wide ? 65535 : 255);
  const auto row = from->is_wide ? (limited ? half_row<uint16_t, true> : half_row<uint16_t, false>)
                                 : (limited ? half_row<uint8_t, true> : half_row<uint8_t, false>);
  for (;;) {
    const int first = __atomic_fetch_add(&from->next, rows, __ATOMIC_RELAXED);
    if (first >= height) return;
    for (int y = first; y < height && y < first + rows; y++) row(*from, *to, y, *count);
  }
}

// Computes the rows of four images, in one thread.
extern "C" void polarization_planes(const Planes *from, const Products *to, Count *count) {
  for (int y = from->first; y < from->end; y++) {
    const int64_t row = y - from->first;
    for (int64_t first = 0; first < to->width; first += PIECE) {
      const int n = (int)(to->width - first < PIECE ? to->width - first : PIECE);
      const float *angles[4];
      for (int k = 0; k < 4; k++) angles[k] = from->angles[k] + row * from->steps[k] + first;
      int32_t saturated[PIECE];
      if (from->saturated)
        for (int x = 0; x < n; x++) saturated[x] = from->saturated[row * to->width + first + x];
      polarimetry(*to, y * to->width + first, n, angles, from->saturated ? saturated : nullptr, *count);
    }
  }
}
