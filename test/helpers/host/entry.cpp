// One kernel, as the runner calls it. KERNEL_FILE and KERNEL_NAME come from the command line.
#include KERNEL_FILE

template <typename Argument> static void call(void (*kernel)(Argument), const void *argument) {
  kernel(*static_cast<const Argument *>(argument));
}

extern "C" __attribute__((visibility("default"))) void host_entry(const void *argument) { call(KERNEL_NAME, argument); }
