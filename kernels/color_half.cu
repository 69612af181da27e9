// Colour, half resolution, each angle at its own site: Malvar-He-Cutler on four Bayer lattices, with intensity, DoLP,
// AoLP and preview in the same launch; 8 bit in and out.
//
// A word of the raw mosaic holds two sites of the lattice. The two bytes of a site are two angles of one colour: the
// lanes of a half2, so that an instruction computes both. Two lines of the lattice need six raw lines of one row
// parity. This window of lines is kept in registers or in shared memory, as the schedule chooses (WINDOW): three
// kernels, one of which the entry point below calls.
#include "products.cuh"

#define WINDOW_REGISTERS 0
#define WINDOW_RING 1
#ifndef WINDOW
#define WINDOW WINDOW_REGISTERS
#endif
#ifndef THREADS
#define THREADS 64
#endif
#ifndef ROWS
#define ROWS 2 // output rows a thread, even
#endif
#ifndef LINES
#define LINES 16 // raw lines in the ring: 12 in use, the others in flight
#endif
// Products need all four angles of a site, so both row parities in one thread; angle images alone do not.
constexpr bool FUSED = OUT_INTENSITY || OUT_DOLP || OUT_AOLP || OUT_PREVIEW;
#ifndef BLOCKS // of a multiprocessor, for which registers must suffice
#if WINDOW == WINDOW_RING || __CUDA_ARCH__ < 900 || ROWS > 4
#define BLOCKS (RESIDENT / THREADS)
#else
#define BLOCKS ((FUSED ? 768 : 1024) / THREADS)
#endif
#endif
static_assert(COLOR && HALF_RESOLUTION && !CO_SITED && DEBAYER == LATTICE_MHC && RAW_FORMAT == RAW_U8 && HALF_PRECISION,
              "see supports() in specs.py");
static_assert(OUT_INTENSITY < 2 && OUT_ANGLE_0 < 2 && OUT_ANGLE_45 < 2 && OUT_ANGLE_90 < 2 && OUT_ANGLE_135 < 2 &&
                  OUT_DOLP < 2 && OUT_AOLP < 2,
              "uint8 outputs only");
static_assert(!OUT_STOKES && !OUT_SUMS && !OUT_S0, "see supports() in specs.py");
static_assert(ROWS % 2 == 0, "two lines of the lattice at a time");
static_assert(LINES % 4 == 0 && LINES >= 16, "twelve lines in use and four in flight");

#include "color_half_registers.cuh"
#include "color_half_ring.cuh"

#ifdef SHARED_BYTES
static_assert((WINDOW == WINDOW_RING ? sizeof(RingShared) : sizeof(Shared)) <= SHARED_BYTES,
              "the schedule reserves too little shared memory");
#endif

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) color_half(const FrameArguments frame) {
  SHARED_MEMORY(memory);
  launch_dependents();
  if (WINDOW == WINDOW_RING)
    make_products_in_ring(frame, *(RingShared *)memory);
  else if (FUSED)
    make_products_in_registers(frame, *(Shared *)memory);
  else
    make_angles_in_registers(frame, *(Shared *)memory);
}
