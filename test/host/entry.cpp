// One kernel, seen by the runner. KERNEL_FILE and KERNEL_NAME come from the command line.
#include KERNEL_FILE
#include "frame.cuh"

extern "C" void host_entry(const void* frame) { KERNEL_NAME(*static_cast<const Frame*>(frame)); }
