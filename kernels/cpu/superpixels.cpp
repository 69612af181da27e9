// From a mono mosaic to every product at half resolution: each angle at its own site, or bilinear.
#include "correct_bytes.hpp"
#include "mosaic.hpp"
#include "polarimetry.hpp"
#include <vector>

namespace {

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
void centers(const Sum *__restrict even, const Sum *__restrict odd, int n, float *__restrict left,
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
  const bool co_sited = from.method == BILINEAR;
  const int width = (int)to.width;
  for (int first = 0; first < width; first += PIECE) {
    const int n = width - first < PIECE ? width - first : PIECE;
    Sum even[PIECE + 2], odd[PIECE + 2];
    Line places[4];
    for (int row = 0; row < 2; row++) {
      const Raw *far = co_sited ? rows[row ? 0 : 3] : nullptr;
      columns<Raw, LIMITED>(rows[1 + row], far, from.width, first, n, from.full_scale, even, odd);
      (co_sited ? centers<Sum> : sites<Sum>)(even, odd, n, places[2 * row], places[2 * row + 1]);
    }
    int32_t saturated[PIECE];
    const bool any = find_saturated(rows[1] + 2 * first, rows[2] + 2 * first, n, from.full_scale, saturated);
    const float *angles[4];
    for (int k = 0; k < 4; k++) angles[k] = places[from.place[k]];
    polarimetry(to, (int64_t)y * width + first, n, angles, any ? saturated : nullptr, count);
  }
}

// ------------------------------------------------------------------------------------------------- corrected pixels

// Even and odd columns of a row of the frame; at -1 and behind the last one what is mirrored there.
template <class Value> struct ColumnLines {
  const Value *even, *odd;
};

// The last four rows of superpixels of a corrected frame: complete rows, since codes are read fastest in their order.
// `Superpixels` corrects them.
template <class Superpixels> class CorrectedRows {
public:
  typedef typename Superpixels::Value Value;

  explicit CorrectedRows(const Mosaic &frame)
      : frame(frame), superpixels(frame), count(superpixel_columns(frame)), pitch((count + 3 * MARGIN) & ~31),
        lines(16 * (size_t)pitch + 2 * MARGIN), aligned((Value *)(((uintptr_t)lines.data() + 63) & ~(uintptr_t)63)) {
    for (int k = 0; k < 4; k++) row_of_lines[k] = -1;
  }

  // Row `y`, which may lie beyond the border: then mirrored about its last pixel.
  ColumnLines<Value> get(int y) {
    y = mirrored(y, frame.height);
    const int row = (y + frame.phase[0]) >> 1;
    if (row_of_lines[row & 3] != row) correct(row);
    return columns(row, (y + frame.phase[0]) & 1);
  }

private:
  const Mosaic &frame;
  const Superpixels superpixels;
  const int count, pitch; // superpixels of a row; values of a line
  std::vector<Value> lines;
  Value *const aligned; // to 64 bytes: the first line
  int row_of_lines[4];  // the row of superpixels that is in each four lines

  Value *line(int row, int place) { return aligned + (size_t)(4 * (row & 3) + place) * pitch + MARGIN; }

  ColumnLines<Value> columns(int row, int below) {
    const int phase = frame.phase[1];
    return {line(row, 2 * below + phase), line(row, 2 * below + !phase) + phase};
  }

  void correct(int row) {
    Value *const to[4] = {line(row, 0), line(row, 1), line(row, 2), line(row, 3)};
    superpixels.get(row, to);
    row_of_lines[row & 3] = row;
    const int width = frame.width / 2;
    for (int below = 0; below < 2; below++) {
      const ColumnLines<Value> stored = columns(row, below);
      const_cast<Value *>(stored.odd)[-1] = stored.odd[0];
      if (frame.width % 2 == 0) const_cast<Value *>(stored.even)[width] = stored.even[width - 1];
    }
  }
};

// The samples of an angle: its own line of pixels, and the next one; both also from the next pixel of this angle on.
template <class Value> struct Samples {
  const Value *own, *far, *own_beyond, *far_beyond;
};

// Co-sited, times 16: 3/4 and 1/4 of the two nearest samples, along y and along x.
inline float center(const float *__restrict own, const float *__restrict far, const float *__restrict own_beyond,
                    const float *__restrict far_beyond, int x) {
  return 3.0f * (3.0f * own[x] + far[x]) + (3.0f * own_beyond[x] + far_beyond[x]);
}
inline float center(const uint16_t *__restrict own, const uint16_t *__restrict far,
                    const uint16_t *__restrict own_beyond, const uint16_t *__restrict far_beyond, int x) {
  static_assert(4 * 255 * UNITS < 1 << 16, "sums down the columns are 16-bit integers");
  const uint16_t near = (uint16_t)(3 * own[x] + far[x]), beyond = (uint16_t)(3 * own_beyond[x] + far_beyond[x]);
  return 3.0f * (float)near + (float)beyond;
}

// The sums of co-sited angles, without storing these.
template <bool HAS_PAIR, class Value> void center_sums(const Samples<Value> angles[4], int n, Sums &sums) {
  const Samples<Value> i0 = angles[0], i45 = angles[1], i90 = angles[2], i135 = angles[3];
  find_sums<HAS_PAIR>(
      n,
      [=](int k, int x) {
        const Samples<Value> &of = k < 2 ? (k ? i45 : i0) : (k > 2 ? i135 : i90);
        return center(of.own, of.far, of.own_beyond, of.far_beyond, x);
      },
      sums);
}

// One angle of a piece of a row: co-sited, or each sample at its own site.
template <class Value> void angle_of(const Samples<Value> &of, bool co_sited, int n, float *__restrict out) {
  const Value *__restrict own = of.own;
  if (co_sited)
    for (int x = 0; x < n; x++) out[x] = center(own, of.far, of.own_beyond, of.far_beyond, x);
  else
    for (int x = 0; x < n; x++) out[x] = (float)own[x];
}

// Whether a product needs the angles themselves, not only their sums.
bool needs_angles(const Products &to) {
  bool needs = to.noise != nullptr;
  for (const Image &angle : to.angles) needs = needs || angle.data;
  return needs;
}

// The samples of the angle at a place, from the output pixel `first` of a row on.
template <class Value>
Samples<Value> samples(int place, const ColumnLines<Value> near[2], const ColumnLines<Value> far[2], int first) {
  const int row = place >> 1, beyond = place & 1 ? -1 : 1;
  const Value *own = (place & 1 ? near[row].odd : near[row].even) + first;
  const Value *other = (place & 1 ? far[row].odd : far[row].even) + first;
  return {own, other, own + beyond, other + beyond};
}

// Every product of a piece of a row.
template <class Value>
void corrected_products(const Products &to, int64_t at, int n, int32_t method, const Samples<Value> angles[4],
                        const int32_t *saturated, Count &count) {
  if (method == BILINEAR && !needs_angles(to)) {
    Sums sums;
    to.first || to.linear ? center_sums<true>(angles, n, sums) : center_sums<false>(angles, n, sums);
    return products_of_sums(to, at, n, sums, saturated, count, nullptr);
  }
  Line means[4];
  const float *lines[4];
  for (int k = 0; k < 4; k++) {
    lines[k] = means[k];
    angle_of(angles[k], method == BILINEAR, n, means[k]);
  }
  polarimetry(to, at, n, lines, saturated, count);
}

// Rows of the output that a thread takes at a time.
const int BAND = 32;

template <class Raw, class Superpixels> void corrected_bands(Mosaic &frame, const Products &to, Count &count) {
  typedef typename Superpixels::Value Value;
  const int height = frame.height / 2, width = (int)to.width;
  CorrectedRows<Superpixels> rows(frame);
  for (;;) {
    const int begin = __atomic_fetch_add(&frame.next, BAND, __ATOMIC_RELAXED);
    if (begin >= height) return;
    for (int y = begin; y < height && y < begin + BAND; y++) {
      const Raw *raw = (const Raw *)((const char *)frame.raw + 2 * y * frame.step);
      const Raw *below = (const Raw *)((const char *)raw + frame.step);
      const ColumnLines<Value> near[2] = {rows.get(2 * y), rows.get(2 * y + 1)};
      const ColumnLines<Value> far[2] = {rows.get(2 * y + 2), rows.get(2 * y - 1)};
      for (int first = 0; first < width; first += PIECE) {
        const int n = width - first < PIECE ? width - first : PIECE;
        Samples<Value> angles[4];
        for (int k = 0; k < 4; k++) angles[k] = samples(frame.place[k], near, far, first);
        int32_t saturated[PIECE];
        const bool any = find_saturated(raw + 2 * first, below + 2 * first, n, frame.full_scale, saturated);
        corrected_products(to, (int64_t)y * width + first, n, frame.method, angles, any ? saturated : nullptr, count);
      }
    }
  }
}

} // namespace

void superpixels(Mosaic &from, const Products &to, Count &count) {
  if (from.words) return corrected_bands<uint8_t, CorrectedBytes>(from, to, count);
  if (from.codes)
    return (from.is_wide ? corrected_bands<uint16_t, CorrectedSuperpixels<uint16_t>>
                         : corrected_bands<uint8_t, CorrectedSuperpixels<uint8_t>>)(from, to, count);
  const int rows = 16, height = from.height / 2;
  const bool limited = from.full_scale < (from.is_wide ? 65535 : 255);
  const auto row = from.is_wide ? (limited ? half_row<uint16_t, true> : half_row<uint16_t, false>)
                                : (limited ? half_row<uint8_t, true> : half_row<uint8_t, false>);
  for (;;) {
    const int first = __atomic_fetch_add(&from.next, rows, __ATOMIC_RELAXED);
    if (first >= height) return;
    for (int y = first; y < height && y < first + rows; y++) row(from, to, y, count);
  }
}
