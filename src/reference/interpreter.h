// The slow truth of whole programs: walks a graph node by node with kernels/ref, one buffer per tensor, row-major, no
// planner, no threads. Works on a graph at any stage of the compiler, since layouts and shared storage change no
// meaning.
#pragma once

#include <complex>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "graph/graph.h"
#include "kernels/ref/ref.h"

namespace lamina {

template <typename S>
class Interpreter {
 public:
  using Tensor = ref::RefTensor<S>;

  // Persistent values and inputs, by name. Persistent values that nobody set start at 0, as in a session.
  void set(const std::string& name, Tensor tensor) { tensors_[name] = std::move(tensor); }

  // Computes all nodes of an op in place of kernels/ref: for what another program may have done.
  using Computation = std::function<void(const ref::RefCall<S>&)>;
  void replace(Op op, Computation computation) { replaced_[op] = std::move(computation); }

  // Runs all nodes. Afterwards `get` gives inputs, persistent values (as updated) and the outputs of the graph; with
  // keep_all every value, by its name. Throws Error(invalid) for an input that was not set or has another size.
  void run(const Graph& graph, bool keep_all = false);

  const Tensor& get(std::string_view name) const;  // throws Error(invalid) for an unknown name
  Tensor take(std::string_view name);              // the same, and it is gone

 private:
  std::map<std::string, Tensor, std::less<>> tensors_;
  std::map<Op, Computation> replaced_;
};

extern template class Interpreter<float>;
extern template class Interpreter<double>;
extern template class Interpreter<std::complex<double>>;

}  // namespace lamina
