#include "graph/text.h"

#include <charconv>
#include <unordered_map>

#include "base/error.h"
#include "graph/schema.h"

namespace lamina {
namespace {

std::string field_text(bool value) { return value ? "true" : "false"; }
std::string field_text(int64_t value) { return std::to_string(value); }
std::string field_text(double value) { return fmt::format("{}", value); }  // shortest text that reads back the same
std::string field_text(const Shape& value) { return value.text(); }

std::string type_text(const Value& value) {
  std::string out = fmt::format("{}[{}]", dtype_name(value.type.dtype), value.type.shape.text());
  if (value.type.layout.kind != LayoutKind::row_major) out += " " + value.type.layout.text();
  return fmt::format("{} {}", out, tensor_class_name(value.tensor_class));
}

// A cursor over one line. Every expectation that fails names the line.
class Line {
 public:
  Line(std::string_view text, int number) : rest_(text), number_(number) {}

  [[noreturn]] void fail(std::string_view expected) const {
    throw_error(ErrorCode::invalid, "bad graph text: line {}, expected {}, got \"{}\"", number_, expected,
                rest_.substr(0, 40));
  }
  bool at_end() {
    skip();
    return rest_.empty();
  }
  bool accept(std::string_view token) {
    skip();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail(fmt::format("\"{}\"", token));
  }
  // A run of characters that names, numbers and shapes consist of. A colon belongs to a name if something follows it.
  std::string_view word() {
    skip();
    size_t n = 0;
    while (n < rest_.size() &&
           (is_word(rest_[n]) || (rest_[n] == ':' && n + 1 < rest_.size() && is_word(rest_[n + 1]))))
      ++n;
    if (n == 0) fail("a word");
    const std::string_view out = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return out;
  }
  template <typename T>
  T number() {
    const std::string_view text = word();
    T out{};
    const auto result = std::from_chars(text.data(), text.data() + text.size(), out);
    if (result.ec != std::errc() || result.ptr != text.data() + text.size()) fail("a number");
    return out;
  }

 private:
  static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '+' || c == '-';
  }
  void skip() {
    while (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
  }

  std::string_view rest_;
  int number_;
};

Shape parse_shape(Line& line) {
  const std::string_view text = line.word();
  Shape shape;
  if (text == "scalar") return shape;
  const char* at = text.data();
  const char* end = at + text.size();
  for (;;) {
    int64_t size = 0;
    const auto result = std::from_chars(at, end, size);
    if (result.ec != std::errc() || size < 0 || shape.rank == Shape::kMaxRank) line.fail("a shape");
    shape.rank += 1;
    shape[shape.rank - 1] = size;
    if (result.ptr == end) return shape;
    if (*result.ptr != 'x') line.fail("a shape");
    at = result.ptr + 1;
  }
}

Dtype dtype(Line& line) {
  const std::optional<Dtype> found = parse_dtype(line.word());
  if (!found) line.fail("a dtype");
  return *found;
}

void parse_field(Line& line, bool& value) {
  const std::string_view text = line.word();
  if (text != "true" && text != "false") line.fail("true or false");
  value = text == "true";
}
void parse_field(Line& line, int64_t& value) { value = line.number<int64_t>(); }
void parse_field(Line& line, double& value) { value = line.number<double>(); }
void parse_field(Line& line, Shape& value) { value = parse_shape(line); }

class Parser {
 public:
  Graph parse(std::string_view text) {
    int number = 0;
    while (!text.empty()) {
      const size_t end = text.find('\n');
      Line line(text.substr(0, end), ++number);
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
      if (!line.at_end()) statement(line);
    }
    if (graph_.name.empty())
      throw_error(ErrorCode::invalid, "bad graph text: expected a line \"graph NAME\", got none");
    verify(graph_);
    return std::move(graph_);
  }

 private:
  void statement(Line& line) {
    if (line.accept("graph ")) {
      graph_.name = line.word();
    } else if (line.accept("input ")) {
      value(line, ValueKind::input);
    } else if (line.accept("persistent ")) {
      value(line, ValueKind::persistent);
    } else if (line.accept("output ")) {
      graph_.outputs.push_back(known(line));
    } else {
      node(line);
    }
    if (!line.at_end()) line.fail("the end of the line");
  }

  ValueId known(Line& line) {
    const std::string name(line.word());
    if (name == "-") return ValueId::none;
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) line.fail(fmt::format("a value defined above instead of {}", name));
    return found->second;
  }

  // NAME: DTYPE[SHAPE] LAYOUT? CLASS (on NAME)?
  ValueId value(Line& line, ValueKind kind) {
    Value value;
    value.kind = kind;
    value.name = line.word();
    line.expect(":");
    value.type.dtype = dtype(line);
    line.expect("[");
    value.type.shape = parse_shape(line);
    line.expect("]");
    if (line.accept("panel")) value.type.layout = Layout::panel(line.number<int32_t>());
    const std::string_view name = line.word();
    bool found = false;
    for (int i = 0; i <= static_cast<int>(TensorClass::io); ++i) {
      if (tensor_class_name(static_cast<TensorClass>(i)) != name) continue;
      value.tensor_class = static_cast<TensorClass>(i);
      found = true;
    }
    if (!found) line.fail("a tensor class");
    if (line.accept("on ")) value.storage_of = known(line);
    graph_.values.push_back(value);
    const auto id = static_cast<ValueId>(graph_.values.size() - 1);
    if (!by_name_.emplace(value.name, id).second) line.fail(fmt::format("a new name instead of {}", value.name));
    return id;
  }

  // ID NAME = OP(IN, …) {ATTRS}? -> VALUE, …
  void node(Line& line) {
    Node node;
    node.id = NodeId{line.number<int32_t>()};
    node.name = line.word();
    line.expect("=");
    const std::optional<Op> op = parse_op(line.word());
    if (!op) line.fail("an op");
    node.op = *op;
    node.attrs = default_attrs(*op);
    line.expect("(");
    while (!line.accept(")")) {
      node.inputs.push_back(known(line));
      if (!line.accept(",")) {
        line.expect(")");
        break;
      }
    }
    if (line.accept("{")) attributes(line, node.attrs);
    if (line.accept("in ")) node.precision = dtype(line);
    line.expect("->");
    do node.outputs.push_back(value(line, ValueKind::computed));
    while (line.accept(","));
    if (static_cast<int32_t>(node.id) < 0) line.fail("a node id from 0 on");
    graph_.next_node = std::max(graph_.next_node, static_cast<int32_t>(node.id) + 1);
    graph_.nodes.push_back(std::move(node));
  }

  static void attributes(Line& line, Attrs& attrs) {
    bool first = true;
    std::visit(
        [&](auto& fields) {
          for_each_field(fields, [&](const char* name, auto& field) {
            if (!first) line.expect(",");
            first = false;
            line.expect(name);
            line.expect("=");
            parse_field(line, field);
          });
        },
        attrs);
    line.expect("}");
  }

  Graph graph_;
  std::unordered_map<std::string, ValueId> by_name_;
};

}  // namespace

Graph parse_graph(std::string_view text) { return Parser().parse(text); }

std::string attrs_text(const Attrs& attrs) {
  std::string out;
  std::visit(
      [&](const auto& fields) {
        for_each_field(fields, [&](const char* name, const auto& field) {
          out += fmt::format("{}{}={}", out.empty() ? "" : ", ", name, field_text(field));
        });
      },
      attrs);
  return out.empty() ? out : "{" + out + "}";
}

std::string to_text(const Graph& graph) {
  std::string out = fmt::format("graph {}\n", graph.name);
  const Uses uses(graph);
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const Value& value = graph.values[i];
    if (value.kind == ValueKind::computed || uses.readers[i].empty()) continue;
    const char* keyword = value.kind == ValueKind::input ? "input" : "persistent";
    out += fmt::format("{} {}: {}\n", keyword, value.name, type_text(value));
  }
  for (const Node& node : graph.nodes) {
    std::string inputs;
    for (ValueId id : node.inputs)
      inputs += (inputs.empty() ? "" : ", ") + (id == ValueId::none ? std::string("-") : graph[id].name);
    std::string outputs;
    for (ValueId id : node.outputs) {
      const Value& value = graph[id];
      outputs += fmt::format("{}{}: {}", outputs.empty() ? "" : ", ", value.name, type_text(value));
      if (value.storage_of != ValueId::none) outputs += " on " + graph[value.storage_of].name;
    }
    std::string attrs = attrs_text(node.attrs);
    if (!attrs.empty()) attrs = " " + attrs;
    if (is_narrow(node)) attrs += fmt::format(" in {}", dtype_name(node.precision));
    out += fmt::format("{} {} = {}({}){} -> {}\n", static_cast<int>(node.id), node.name, op_name(node.op), inputs,
                       attrs, outputs);
  }
  for (ValueId id : graph.outputs) out += fmt::format("output {}\n", graph[id].name);
  return out;
}

}  // namespace lamina
