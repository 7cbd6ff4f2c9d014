// Puts a cast before every computed fp32 value that a product takes in 16 bits: one for each value and precision, where
// it is first needed. Parameters stay fp32 and have one home: products round them while they pack.
//
//   y = linear(x, W) in bf16   ->   a = cast(x) in bf16; y = linear(a, W) in bf16
#include <map>

#include "base/error.h"
#include "graph/schema.h"
#include "passes/pass.h"

namespace lamina {
namespace {

class Caster {
 public:
  explicit Caster(Graph& graph) : graph_(graph) {}

  bool run() {
    std::vector<Node> old = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (Node& node : old) {
      const uint32_t operands = is_narrow(node) ? operands_of(node) : 0;
      for (size_t i = 0; operands != 0 && i < node.inputs.size(); ++i)  // products have few inputs
        if (((operands >> i) & 1u) != 0 && node.inputs[i] != ValueId::none)
          node.inputs[i] = in_16_bits(node.inputs[i], node.precision);
      graph_.nodes.push_back(std::move(node));
    }
    return graph_.nodes.size() > old.size();
  }

 private:
  ValueId in_16_bits(ValueId id, Dtype precision) {
    if (graph_[id].type.dtype != Dtype::f32 || graph_[id].kind != ValueKind::computed) return id;
    const auto [found, fresh] = casts_.emplace(std::pair{id, precision}, static_cast<ValueId>(graph_.values.size()));
    const ValueId cast = found->second;
    if (!fresh) return cast;
    Value value = graph_[id];
    value.name = fmt::format("{}.{}", value.name, dtype_name(precision));
    value.type.dtype = precision;
    value.storage_of = ValueId::none;
    graph_.nodes.push_back({NodeId{graph_.next_node++}, Op::cast, value.name, {id}, {cast}, NoAttrs{}, precision});
    graph_.values.push_back(std::move(value));
    return cast;
  }

  Graph& graph_;
  std::map<std::pair<ValueId, Dtype>, ValueId> casts_;
};

}  // namespace

bool insert_casts(Graph& graph, const PassContext&) { return Caster(graph).run(); }

}  // namespace lamina
