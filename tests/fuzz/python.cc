// libFuzzer's entry for one reader: clang++ -fsanitize=fuzzer,address. See targets.h.
#include "fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lamina::fuzz::python({reinterpret_cast<const char*>(data), size});
  return 0;
}
