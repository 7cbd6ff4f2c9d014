// The border: the C interface of MindSpore's `ops.Custom(..., func_type="aot")`. `params` are inputs, outputs and (here
// none) workspaces; `stream` is null on the CPU, and of `extra` nothing is asked. No exception leaves an entry.
#include <new>

#include "cells.h"

namespace lamina::fused {
namespace {

template <int kArguments, void (*cell)(const Call&, Engine&)>
int enter(int count, void** params, int* ranks, int64_t** shapes, const char** dtypes) noexcept {
  try {
    const Call call(count, params, ranks, shapes, dtypes, kArguments);
    Engine& engine = Engine::instance();
    const auto lock = engine.begin();
    const FlushDenormals flush;
    cell(call, engine);
    return static_cast<int>(Code::done);
  } catch (const Refused& refused) {
    return static_cast<int>(refused.code);
  } catch (const std::bad_alloc&) {
    return static_cast<int>(Code::memory);
  } catch (...) {  // of the engine: an unknown LAMINA_ISA, no threads
    return static_cast<int>(Code::environment);
  }
}

}  // namespace
}  // namespace lamina::fused

#define LAMINA_ENTRY(name, arguments)                                                                                 \
  extern "C" __attribute__((visibility("default"))) int lamina_##name(                                                \
      int count, void** params, int* ranks, int64_t** shapes, const char** dtypes, void*, void*) {                    \
    return lamina::fused::enter<lamina::fused::arguments, lamina::fused::name>(count, params, ranks, shapes, dtypes); \
  }

LAMINA_ENTRY(attention_forward, kAttentionForward)
LAMINA_ENTRY(attention_backward, kAttentionBackward)
LAMINA_ENTRY(mlp_forward, kMlpForward)
LAMINA_ENTRY(mlp_backward, kMlpBackward)
