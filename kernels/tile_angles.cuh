// `tile`, fourth stage: the four angles at every output pixel, by the method that `tile` is compiled for.
#pragma once
#include "tile_adaptive.cuh"

// Four pixels of row y (of the tile) at pair k: own sample and the three missing angles by place: of the row (h), of
// the column (v), of the diagonals (d).
DEVICE void restore(const Shared &s, int channel, int y, int k, Pair (&own)[2], Pair (&h)[2], Pair (&v)[2],
                    Pair (&d)[2]) {
#if ADAPTIVE
  stage_b(s, channel, y, k, own, h, v, d);
#elif RESTORES
  const Pair *p = &s.mosaic[channel][y + HALO_Y][k + HALO_X / 2];
  Pair c[4], n[4]; // columns of pairs -2, 0, 2, 4: this row; the sum of the rows above and below
#pragma unroll
  for (int i = 0; i < 4; i++) {
    c[i] = p[i - 1];
    n[i] = add(p[i - 1 - MOSAIC_P], p[i - 1 + MOSAIC_P]);
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
    own[i] = c[i + 1];
    h[i] = add(straddle(c[i], c[i + 1]), straddle(c[i + 1], c[i + 2]));
    v[i] = n[i + 1];
    d[i] = add(straddle(n[i], n[i + 1]), straddle(n[i + 1], n[i + 2]));
#if DEMOSAIC == METHOD_GRADIENT
    const Pair axial = add(add(c[i], c[i + 2]), add(p[i - 2 * MOSAIC_P], p[i + 2 * MOSAIC_P]));
    const Pair detail = fma(axial, splat(-BETA / 4), mul(own[i], splat(BETA)));
    h[i] = fma_clip(h[i], splat(0.5), detail);
    v[i] = fma_clip(v[i], splat(0.5), detail);
    d[i] = fma_clip(d[i], splat(0.25), detail);
#else
    h[i] = mul(h[i], splat(0.5));
    v[i] = mul(v[i], splat(0.5));
    d[i] = mul(d[i], splat(0.25));
#endif
  }
#endif
}

// The angle images of a row's pixels, from what `restore` computed; ROW: parity of the row.
template <int ROW>
DEVICE void by_angle(const Pair (&own)[2], const Pair (&h)[2], const Pair (&v)[2], const Pair (&d)[2],
                     Pair (&angle)[4][2]) {
#pragma unroll
  for (int i = 0; i < 2; i++) {
    angle[angle_at(ROW, 0)][i] = join(own[i], h[i]);
    angle[angle_at(ROW, 1)][i] = join(h[i], own[i]);
    angle[angle_at(ROW ^ 1, 0)][i] = join(v[i], d[i]);
    angle[angle_at(ROW ^ 1, 1)][i] = join(d[i], v[i]);
  }
}

#if !HALF_RESOLUTION
// four pixels of row y at pair k
template <int ROW> DEVICE void full_angles(const Shared &s, int y, int k, Angles &angle) {
#pragma unroll
  for (int c = 0; c < CHANNELS; c++) {
    Pair own[2], h[2], v[2], d[2];
    restore(s, c, y, k, own, h, v, d);
    by_angle<ROW>(own, h, v, d, angle[c]);
    compiler_fence();
  }
}
#else
#if RESTORES && DEMOSAIC == METHOD_BILINEAR
// Four superpixels, raw row y, pair k. The mean of an angle's four bilinear values is 9 3 / 3 1 on its own lattice,
// toward the superpixel's center.
DEVICE void half_angles(const Shared &s, int channel, int y, int k, Pair (&angle)[4][2]) {
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const Pair *p = &s.mosaic[channel][y + i + HALO_Y][k + HALO_X / 2];
    Pair n[8], m[4]; // pairs -2 .. 5; the outermost are not needed
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      const Quad own = *(const Quad *)(p + j - 2), other = *(const Quad *)(p + j - 2 + (i ? -2 : 2) * MOSAIC_P);
      n[j] = fma(own.a, splat(0.75), mul(other.a, splat(0.25)));
      n[j + 1] = fma(own.b, splat(0.75), mul(other.b, splat(0.25)));
    }
#pragma unroll
    for (int j = 0; j < 4; j++) m[j] = fma(n[j + 2], splat(0.75), mul(join(n[j + 3], n[j + 1]), splat(0.25)));
#pragma unroll
    for (int j = 0; j < 2; j++) {
      angle[angle_at(i, 0)][j] = lows(m[2 * j], m[2 * j + 1]);
      angle[angle_at(i, 1)][j] = highs(m[2 * j], m[2 * j + 1]);
    }
  }
}
#else
// two superpixels in the lanes of one pair: raw row y, pair k
DEVICE void half_angles(const Shared &s, int channel, int y, int k, Pair (&angle)[4]) {
#if !RESTORES
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const Quad q = *(const Quad *)&s.mosaic[channel][y + i][k];
    angle[angle_at(i, 0)] = lows(q.a, q.b);
    angle[angle_at(i, 1)] = highs(q.a, q.b);
  }
#else
  Pair own[2], h[2], v[2], d[2], row[4][2];
  restore(s, channel, y, k, own, h, v, d);
  by_angle<0>(own, h, v, d, row);
#pragma unroll
  for (int a = 0; a < 4; a++) angle[a] = add(lows(row[a][0], row[a][1]), highs(row[a][0], row[a][1])); // sums along x
  compiler_fence();
  restore(s, channel, y + 1, k, own, h, v, d);
  by_angle<1>(own, h, v, d, row);
#pragma unroll
  for (int a = 0; a < 4; a++)
    angle[a] = mul(add(angle[a], add(lows(row[a][0], row[a][1]), highs(row[a][0], row[a][1]))), splat(0.25));
#endif
}
#endif
#if ADAPTIVE
// The same through shared memory: a thread that held all channels would spill. The angles overwrite the energies of the
// same pixels, which no other thread reads.
DEVICE void store_angles(Shared &s, int channel, int y, int k) {
  Pair angle[4];
  half_angles(s, channel, y, k, angle);
  Pair *p = &s.adaptive.stage[channel].energy[y][k];
  *(Quad *)p = Quad{angle[0], angle[1]};
  *(Quad *)(p + TILE_P) = Quad{angle[2], angle[3]};
}
DEVICE void read_angles(const Shared &s, int channel, int y, int k, Pair (&angle)[4]) {
  const Pair *p = &s.adaptive.stage[channel].energy[y][k];
  const Quad upper = *(const Quad *)p, lower = *(const Quad *)(p + TILE_P);
  angle[0] = upper.a;
  angle[1] = upper.b;
  angle[2] = lower.a;
  angle[3] = lower.b;
}
#endif
#endif

#if ADAPTIVE
// ADR on the tile: the switch, stage A, and at half resolution also stage B, which at full resolution each thread does
// for its outputs.
DEVICE void interpolate_adaptively(Shared &s) {
  constexpr int COLUMNS = PLANE_P - 2; // of the planes, without the outermost pairs
  for (int i = threadIdx.x; i < RUNS * COLUMNS; i += THREADS) {
    const Item at = item<RUNS, COLUMNS, GROUP_OF_PAIRS>(i);
    gradients(s, at.line * GRADIENT_ROWS, at.column + 1);
    if (RUNS * COLUMNS <= THREADS) break; // no register for the counter
  }
  sync_block();
  for (int i = threadIdx.x; i < RUNS * TILE_P; i += THREADS) {
    const Item at = item<RUNS, TILE_P, GROUP_OF_PAIRS>(i);
    find_edges(s, at.line * EDGE_ROWS, at.column);
    if (RUNS * TILE_P <= THREADS) break;
  }
  sync_block();
  for (int i = threadIdx.x; i < CHANNELS * RUNS * COLUMNS; i += THREADS) {
    const Item at = item<CHANNELS * RUNS, COLUMNS, GROUP_OF_PAIRS>(i);
    stage_a(s, at.line / RUNS, 1 + at.line % RUNS * STAGE_ROWS, at.column + 1); // one row beyond the tile
    if (CHANNELS * RUNS * COLUMNS <= THREADS) break;
  }
  sync_block();
#if !HALF_PRECISION
  for (int i = threadIdx.x; i < CHANNELS * RUNS * TILE_P; i += THREADS) {
    const Item at = item<CHANNELS * RUNS, TILE_P, GROUP_OF_PAIRS>(i);
    finish_stage_a(s, at.line / RUNS, at.line % RUNS * EDGE_ROWS, at.column);
    if (CHANNELS * RUNS * TILE_P <= THREADS) break;
  }
  sync_block();
#endif
#if HALF_RESOLUTION
  constexpr int CENTERS_X = TILE_X / 4, CENTERS_Y = TILE_Y / 2; // pairs of superpixels
  for (int i = threadIdx.x; i < CHANNELS * CENTERS_Y * CENTERS_X; i += THREADS) {
    const Item at = item<CHANNELS * CENTERS_Y, CENTERS_X, GROUP_OF_QUADS>(i);
    store_angles(s, at.line / CENTERS_Y, at.line % CENTERS_Y * 2, 2 * at.column);
  }
  sync_block();
#endif
}
#endif

// The angles of the four outputs of unit u in row r.
DEVICE void output_angles(const Shared &s, int r, int u, Angles &angle) {
#if HALF_RESOLUTION
#pragma unroll
  for (int c = 0; c < CHANNELS; c++)
#if RESTORES && DEMOSAIC == METHOD_BILINEAR
    half_angles(s, c, 2 * r, 4 * u, angle[c]);
#else
#pragma unroll
    for (int k = 0; k < 2; k++) {
      Pair a[4];
#if ADAPTIVE
      read_angles(s, c, 2 * r, 4 * u + 2 * k, a);
#else
      half_angles(s, c, 2 * r, 4 * u + 2 * k, a);
#endif
      for (int j = 0; j < 4; j++) angle[c][j][k] = a[j];
      compiler_fence();
    }
#endif
#else
  if (r & 1)
    full_angles<1>(s, r, 2 * u, angle);
  else
    full_angles<0>(s, r, 2 * u, angle);
#endif
}
