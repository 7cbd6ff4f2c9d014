#include "base/error.h"

#include <cstdio>
#include <cstdlib>

namespace lamina {

void check_failed(const char* file, int line, const char* condition, const std::string& context) {
  std::fprintf(stderr, "lamina: internal error: %s: %s:%d: %s\n", condition, file, line, context.c_str());
  std::abort();
}

}  // namespace lamina
