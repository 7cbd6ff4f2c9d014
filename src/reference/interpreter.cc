#include "reference/interpreter.h"

#include <vector>

#include "base/error.h"
#include "base/half.h"
#include "graph/schema.h"
#include "kernels/ref/math.h"

namespace lamina {
namespace {

bool is_float(Dtype dtype) { return dtype == Dtype::f32 || is_16_bit(dtype); }

template <typename S>
ref::RefTensor<S> zeros(const Type& type) {
  ref::RefTensor<S> out;
  out.shape = type.shape;
  const auto elements = static_cast<size_t>(type.shape.elements());
  if (is_float(type.dtype))
    out.values.assign(elements, S{});
  else
    out.ints.assign(elements, 0);
  return out;
}

// The last node that reads each value; the number of nodes for values that must stay.
std::vector<size_t> last_reads(const Graph& graph) {
  std::vector<size_t> last(graph.values.size(), 0);
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    for (ValueId id : graph.nodes[n].inputs)
      if (id != ValueId::none) last[static_cast<size_t>(id)] = n;
  for (ValueId id : graph.outputs) last[static_cast<size_t>(id)] = graph.nodes.size();
  return last;
}

// One run: values by id. Declared ones live in the interpreter's map, computed ones here.
template <typename S>
class Run {
 public:
  using Tensor = ref::RefTensor<S>;

  using Replaced = std::map<Op, typename Interpreter<S>::Computation>;

  Run(const Graph& graph, std::map<std::string, Tensor, std::less<>>& named, const Replaced& replaced)
      : graph_(graph),
        named_(named),
        replaced_(replaced),
        computed_(graph.values.size()),
        where_(graph.values.size(), nullptr) {
    for (size_t i = 0; i < graph.values.size(); ++i)
      if (graph.values[i].kind != ValueKind::computed) declare(i);
  }

  void node(const Node& node) {
    ref::RefCall<S> call;
    for (ValueId id : node.inputs) call.in.push_back(id == ValueId::none ? nullptr : where_[static_cast<size_t>(id)]);
    std::vector<Tensor> rounded(call.in.size());
    if (is_narrow(node)) round_operands(node, call, rounded);
    call.precision = node.precision;
    for (ValueId id : node.outputs) {
      Tensor& out = computed_[static_cast<size_t>(id)];
      out = zeros<S>(graph_[id].type);
      where_[static_cast<size_t>(id)] = &out;
      call.out.push_back(&out);
    }
    if (node.op == Op::reshape) {
      call.out[0]->values = call.in[0]->values;
      call.out[0]->ints = call.in[0]->ints;
    } else {
      call.attrs = std::visit([](const auto& attrs) -> const void* { return &attrs; }, node.attrs);
      const auto other = replaced_.find(node.op);
      other == replaced_.end() ? ref::run<S>(node.op, call) : other->second(call);
    }
    for (ValueId id : node.outputs) {
      if (is_16_bit(graph_[id].type.dtype))
        ref::round_values(computed_[static_cast<size_t>(id)], graph_[id].type.dtype);
      update(id);
    }
  }

  void drop(ValueId id) { computed_[static_cast<size_t>(id)] = {}; }
  void publish(ValueId id) {
    if (where_[static_cast<size_t>(id)] == &computed_[static_cast<size_t>(id)])
      named_[graph_[id].name] = std::move(computed_[static_cast<size_t>(id)]);
  }

 private:
  void round_operands(const Node& node, ref::RefCall<S>& call, std::vector<Tensor>& rounded) const {
    const uint32_t operands = operands_of(node);
    for (size_t i = 0; i < call.in.size(); ++i) {
      if (call.in[i] == nullptr || ((operands >> i) & 1u) == 0) continue;
      rounded[i] = *call.in[i];
      ref::round_values(rounded[i], node.precision);
      call.in[i] = &rounded[i];
    }
  }

  void declare(size_t i) {
    const Value& value = graph_.values[i];
    auto found = named_.find(value.name);
    if (found == named_.end()) {
      if (value.kind == ValueKind::input) return;  // an error only where a node reads it
      found = named_.emplace(value.name, zeros<S>(value.type)).first;
    }
    Tensor& tensor = found->second;
    const size_t size = is_float(value.type.dtype) ? tensor.values.size() : tensor.ints.size();
    if (size != static_cast<size_t>(value.type.shape.elements()))
      throw_error(ErrorCode::invalid, "tensor {} of {} elements, expected {}", value.name, size,
                  value.type.shape.text());
    tensor.shape = value.type.shape;
    where_[i] = &tensor;
  }

  // An update in place of persistent storage becomes visible under its name.
  void update(ValueId id) {
    const ValueId root = graph_.root(id);
    if (graph_[root].kind != ValueKind::persistent) return;
    Tensor& home = named_.at(graph_[root].name);
    home = std::move(computed_[static_cast<size_t>(id)]);
    where_[static_cast<size_t>(id)] = &home;
  }

  const Graph& graph_;
  std::map<std::string, Tensor, std::less<>>& named_;
  const Replaced& replaced_;
  std::vector<Tensor> computed_;
  std::vector<Tensor*> where_;
};

}  // namespace

template <typename S>
void Interpreter<S>::run(const Graph& graph, bool keep_all) {
  Run<S> run(graph, tensors_, replaced_);
  const std::vector<size_t> last = last_reads(graph);
  for (const Node& node : graph.nodes)
    for (ValueId id : node.inputs)
      if (id != ValueId::none && graph[id].kind == ValueKind::input && !tensors_.contains(graph[id].name))
        throw_error(ErrorCode::invalid, "input {} of graph {} was not set", graph[id].name, graph.name);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    run.node(graph.nodes[n]);
    if (keep_all) continue;
    for (const std::vector<ValueId>* list : {&graph.nodes[n].inputs, &graph.nodes[n].outputs})
      for (ValueId id : *list)
        if (id != ValueId::none && graph[id].kind == ValueKind::computed && last[static_cast<size_t>(id)] <= n)
          run.drop(id);
  }
  if (keep_all) {
    for (const Node& node : graph.nodes)
      for (ValueId id : node.outputs) run.publish(id);
  } else {
    for (ValueId id : graph.outputs) run.publish(id);
  }
}

template <typename S>
const ref::RefTensor<S>& Interpreter<S>::get(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) throw_error(ErrorCode::invalid, "no tensor {} in the interpreter", name);
  return found->second;
}

template <typename S>
ref::RefTensor<S> Interpreter<S>::take(std::string_view name) {
  (void)get(name);  // throws
  auto node = tensors_.extract(tensors_.find(name));
  return std::move(node.mapped());
}

template class Interpreter<float>;
template class Interpreter<double>;
template class Interpreter<std::complex<double>>;

}  // namespace lamina
