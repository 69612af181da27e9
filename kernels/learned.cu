// The correction of denoised planes by a network, and the products: `demosaic` "learned", which
// `polar_pipeline/backends/reference/learned.py` defines and explains. S0/2 takes the place of S0 here.
//
// PART chooses one of the launches that follow each other. A block makes a tile; images of the network are halves in
// global memory, with 16 channels at the resolution of superpixels (`fine`) and 32 at half of it:
//   PART_FEATURES  features of superpixels, `enter`, `encode_0` -> fine
//   PART_MIDDLE    fine, `down_1`, `encode_1` -> middle
//   PART_COARSE    middle, `down_2`, `encode_2`, `up_1`, plus middle -> merged
//   PART_FINE      merged, `decode_1`, `up_0`, plus fine -> fine, in its place
//   PART_CHANGE    fine, `decode_0`, `leave`, limits -> change
//   PART_PRODUCTS  planes plus change -> products, or planes for `transform`
// The floor on an H200, for a frame of 2448 x 2048: 12 thousand multiply-adds a superpixel are 15e9, 30 us of its
// tensor cores at their peak. The planes and images that are read and stored are 390 bytes a superpixel, with planes in
// float 480: 100 to 125 us of its memory.
#include "learned.cuh"

#if PART == PART_FEATURES
#include "learned_features.cuh"
#elif PART <= PART_FINE
#include "learned_levels.cuh"
#elif PART == PART_CHANGE
#include "learned_change.cuh"
#else
#include "learned_products.cuh"
#endif

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) learned(const LearnedArguments job) {
  SHARED_MEMORY(memory);
  run_part(job, memory);
}
