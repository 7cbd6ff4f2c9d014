// Dispatch by op, and the four instantiations that the rest of the program links to.
#include "base/error.h"
#include "kernels/ref/adamw.h"
#include "kernels/ref/attention.h"
#include "kernels/ref/cells.h"
#include "kernels/ref/cross_entropy.h"
#include "kernels/ref/elementwise.h"
#include "kernels/ref/embedding.h"
#include "kernels/ref/gelu.h"
#include "kernels/ref/layernorm.h"
#include "kernels/ref/linear.h"
#include "kernels/ref/mag.h"
#include "kernels/ref/reduce.h"
#include "kernels/ref/ref.h"

namespace lamina::ref {
namespace {

template <typename S>
void branch(const RefCall<S>&) {
  LAMINA_CHECK(false, "a branch reached the reference kernels: fold_branches did not run");
}

template <typename S>
void reshape(const RefCall<S>&) {
  LAMINA_CHECK(false, "a reshape computes nothing: its caller shares the values");
}

}  // namespace

template <typename S>
void run(Op op, const RefCall<S>& call) {
  switch (op) {
#define OP(name, attrs) \
  case Op::name:        \
    ref::name<S>(call); \
    break;
#include "base/ops.def"
#undef OP
  }
}

template void run<float>(Op, const RefCall<float>&);
template void run<double>(Op, const RefCall<double>&);
template void run<std::complex<double>>(Op, const RefCall<std::complex<double>>&);
template void run<Mag>(Op, const RefCall<Mag>&);

}  // namespace lamina::ref
