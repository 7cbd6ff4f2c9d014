#include "migrate/verify_witness.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <limits>
#include <set>

#include "base/error.h"
#include "io/quote.h"
#include "io/safetensors.h"
#include "io/widen.h"
#include "migrate/verify_compare.h"
#include "model/programs.h"

namespace lamina {
namespace {

constexpr const char* kHash = "inputs_xxh3_128";

std::vector<double> doubles(const SafetensorsFile& file, const SafetensorsTensor& tensor) {
  std::vector<double> out(tensor.bytes.size() / 8);
  if (tensor.dtype == "F64") {
    std::memcpy(out.data(), tensor.bytes.data(), tensor.bytes.size());
    return out;
  }
  if (!widens_exactly(tensor.dtype))
    throw_error(ErrorCode::invalid, "bad tensor: {}: {}: expected F64, F32, F16 or BF16, got {}", file.path(),
                tensor.name, tensor.dtype);
  std::vector<float> values(tensor.bytes.size() / (tensor.dtype == "F32" ? 4 : 2));
  widen(tensor.dtype, tensor.bytes, values.data());
  return {values.begin(), values.end()};
}

std::vector<int32_t> ids(const SafetensorsFile& file, const SafetensorsTensor& tensor) {
  if (tensor.dtype != "I32" || tensor.shape.size() != 2)
    throw_error(ErrorCode::invalid, "bad tensor: {}: {}: expected I32 with 2 dimensions, got {} with {}", file.path(),
                tensor.name, tensor.dtype, tensor.shape.size());
  std::vector<int32_t> out(tensor.bytes.size() / 4);
  std::memcpy(out.data(), tensor.bytes.data(), tensor.bytes.size());
  return out;
}

std::optional<double> number(const SafetensorsFile& file, const char* key, double below) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) return {};
  double out = 0.0;
  const std::string& text = found->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size() || !(out > 0.0 && out < below))
    throw_error(ErrorCode::invalid, "bad metadata: {}: {}: expected a number above 0 and below {}, got \"{}\"",
                file.path(), key, below, text);
  return out;
}

// One parameter out of its HuggingFace tensor, row-major (in, out).
std::vector<double> unpacked(const ParameterSpec& spec, const std::vector<double>& from) {
  const int64_t K = spec.shape.rows(), N = spec.shape.last(), width = spec.hf.shape.last();
  std::vector<double> out;
  for (int64_t k = 0; k < K; ++k)
    for (int64_t n = 0; n < N; ++n)
      out.push_back(from[static_cast<size_t>(spec.hf.transposed ? n * width + k : k * width + spec.hf.column + n)]);
  return out;
}

// HuggingFace's named_parameters() begins with the body's name; its files need not.
constexpr std::string_view kBody = "transformer.";

class Reader {
 public:
  Reader(const std::string& path, const ModelConfig& config) : file_(path), config_(config) { out_.path = path; }

  Witness read() {
    check_names();
    read_about();
    for (const SafetensorsTensor& tensor : file_.tensors()) {
      const std::string& name = tensor.name;
      if (name == "tokens" || name == "targets" || name.starts_with("grad.") || name.starts_with("param.")) continue;
      if (name == "losses")
        out_.losses = doubles(file_, tensor);
      else
        out_.numbers.push_back(
            {name, tensor.shape.empty() ? std::vector<int64_t>{1} : tensor.shape, doubles(file_, tensor)});
    }
    for (const ParameterSpec& spec : untied_specs()) {
      if (const std::optional<std::vector<double>> values = parameter(spec, "grad."))
        out_.numbers.push_back({"grad." + spec.name, dims(spec.shape), *values});
      if (const std::optional<std::vector<double>> values = parameter(spec, "param."))
        out_.weights[spec.name] = {values->begin(), values->end()};
    }
    if (config_.tie_word_embeddings) join_head();
    return std::move(out_);
  }

 private:
  static std::vector<int64_t> dims(const Shape& shape) { return {shape.dims.begin(), shape.dims.begin() + shape.rank}; }

  std::vector<ParameterSpec> untied_specs() const {
    ModelConfig all = config_;
    all.tie_word_embeddings = false;
    return parameter_specs(all);
  }

  // Whatever is there is compared: what has another name would be passed over in silence.
  void check_names() const {
    std::set<std::string> known{"tokens", "targets", "logits", "logits.again", "loss", "losses"};
    for (const std::string& name : residual_names(config_)) known.insert(name);
    for (const ParameterSpec& spec : untied_specs())
      for (const char* kind : {"grad.", "param."}) {
        known.insert(kind + spec.hf.name);
        known.insert(std::string(kind).append(kBody) + spec.hf.name);
      }
    std::vector<std::string> unknown;
    for (const SafetensorsTensor& tensor : file_.tensors())
      if (!known.contains(tensor.name)) unknown.push_back(plain_or_quoted(tensor.name));
    if (unknown.empty()) return;
    const size_t shown = std::min<size_t>(unknown.size(), 4);
    throw_error(ErrorCode::invalid,
                "unknown tensors: {}: expected names such as logits, layer.0.mlp.residual or grad.h.0.ln_1.bias, of {} "
                "layers, got {}{}",
                file_.path(), config_.n_layer, fmt::join(unknown.begin(), unknown.begin() + shown, ", "),
                unknown.size() > shown ? fmt::format(" and {} more", unknown.size() - shown) : "");
  }

  // The head of a tied model has no gradient of its own. A program that lists it all the same says the one gradient
  // twice where both are one parameter there, else the two parts of it.
  void join_head() {
    const NamedNumbers *head = find_numbers(out_.numbers, "grad.head.weight"),
                       *table = find_numbers(out_.numbers, "grad.embedding.token");
    if (head == nullptr) return;
    if (table == nullptr)
      throw_error(ErrorCode::invalid,
                  "bad witness: {}: grad.lm_head.weight: expected grad.wte.weight beside it, whose part it is in a "
                  "model with one table, got none",
                  file_.path());
    if (head->values == table->values)
      std::erase_if(out_.numbers, [](const NamedNumbers& n) { return n.name == "grad.head.weight"; });
    else
      fold_head(out_.numbers);
  }

  void read_about() {
    bool exact = true;
    for (const SafetensorsTensor& tensor : file_.tensors())
      exact = exact && (tensor.dtype == "F64" || tensor.dtype == "I32" || tensor.name.starts_with("param."));
    out_.unit = number(file_, "unit", 1.0).value_or(exact ? kUnit64 : kUnit32);
    out_.softmax_error = number(file_, "softmax_error", 1.0).value_or(0.0);
    out_.lr = number(file_, "lr", std::numeric_limits<double>::infinity());
    const auto text = [&](const char* key) {
      const auto found = file_.metadata().find(key);
      return found == file_.metadata().end() ? std::string() : found->second;
    };
    out_.engine = text("engine");
    out_.hash = text(kHash);
    const SafetensorsTensor *tokens = file_.find("tokens"), *targets = file_.find("targets");
    if (tokens == nullptr || targets == nullptr) return;
    VerifyInputs inputs{0, 0, ids(file_, *tokens), ids(file_, *targets)};
    inputs.rows = tokens->shape[0];
    inputs.seq = tokens->shape[1];
    if (tokens->shape != targets->shape || inputs.tokens.empty())
      throw_error(ErrorCode::invalid, "bad witness: {}: targets: expected the shape of tokens, {}, got {}",
                  file_.path(), fmt::join(tokens->shape, "x"), fmt::join(targets->shape, "x"));
    check_ids(inputs);
    if (!out_.hash.empty() && out_.hash != inputs.hash())
      throw_error(ErrorCode::invalid, "bad witness: {}: {}: expected {} of its own tokens and targets, got {}",
                  file_.path(), kHash, inputs.hash(), out_.hash);
    out_.hash = inputs.hash();
    out_.inputs = std::move(inputs);
  }

  void check_ids(const VerifyInputs& inputs) const {
    if (inputs.seq > config_.n_positions)
      throw_error(ErrorCode::invalid, "bad witness: {}: tokens: expected at most {} in a row (n_positions), got {}",
                  file_.path(), config_.n_positions, inputs.seq);
    for (size_t i = 0; i < inputs.tokens.size(); ++i) {
      const int32_t id = inputs.tokens[i], target = inputs.targets[i];
      if (id < 0 || id >= config_.vocab_size || target >= config_.vocab_size)
        throw_error(ErrorCode::invalid, "bad witness: {}: place {}: expected ids from 0 to {}, got {} and target {}",
                    file_.path(), i, config_.vocab_size - 1, id, target);
    }
  }

  std::optional<std::vector<double>> parameter(const ParameterSpec& spec, const std::string& front) const {
    const SafetensorsTensor *tensor = file_.find(front + spec.hf.name),
                            *other = file_.find(std::string(front).append(kBody) + spec.hf.name);
    if (tensor != nullptr && other != nullptr)
      throw_error(ErrorCode::invalid, "bad witness: {}: expected one of {} and {}, got both", file_.path(),
                  tensor->name, other->name);
    if (tensor == nullptr) tensor = other;
    if (tensor == nullptr) return {};
    std::vector<int64_t> shape = tensor->shape;  // a padded table's further rows are left behind
    if (spec.name != "embedding.position" && spec.hf.transposed && shape.size() == 2)
      shape[0] = std::min(shape[0], spec.hf.shape[0]);
    if (shape != dims(spec.hf.shape))
      throw_error(ErrorCode::invalid, "wrong shape: {}: {}: expected {}, got {}", file_.path(), tensor->name,
                  fmt::join(dims(spec.hf.shape), "x"), fmt::join(tensor->shape, "x"));
    return unpacked(spec, doubles(file_, *tensor));
  }

  SafetensorsFile file_;
  const ModelConfig& config_;
  Witness out_;
};

// Gradients in the packing of HuggingFace's tensors, in the order of their first parameter.
Numbers packed(const ModelConfig& config, const Numbers& numbers) {
  Numbers out;
  for (const ParameterSpec& spec : parameter_specs(config)) {
    const NamedNumbers* gradient = find_numbers(numbers, "grad." + spec.name);
    if (gradient == nullptr) continue;
    const Shape& shape = spec.hf.shape;
    const std::string name = "grad." + spec.hf.name;
    if (find_numbers(out, name) == nullptr)
      out.push_back({name,
                     {shape.dims.begin(), shape.dims.begin() + shape.rank},
                     std::vector<double>(static_cast<size_t>(shape.elements()))});
    auto& values = std::find_if(out.begin(), out.end(), [&](const NamedNumbers& n) { return n.name == name; })->values;
    const int64_t K = spec.shape.rows(), N = spec.shape.last(), width = shape.last();
    for (int64_t k = 0; k < K; ++k)
      for (int64_t n = 0; n < N; ++n)
        values[static_cast<size_t>(spec.hf.transposed ? n * width + k : k * width + spec.hf.column + n)] =
            gradient->values[static_cast<size_t>(k * N + n)];
  }
  return out;
}

}  // namespace

Witness read_witness(const std::string& path, const ModelConfig& config) { return Reader(path, config).read(); }

bool is_witness(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  try {
    const SafetensorsFile file(path);
    return file.find("tokens") != nullptr && file.find("targets") != nullptr;
  } catch (const Error&) {
    return false;
  }
}

void write_witness(const std::string& path, const ModelConfig& config, const Witness& witness) {
  Numbers all = packed(config, witness.numbers);
  for (const NamedNumbers& tensor : witness.numbers)
    if (!is_gradient(tensor.name)) all.push_back(tensor);
  if (!witness.losses.empty()) all.push_back({"losses", {std::ssize(witness.losses)}, witness.losses});
  std::map<std::string, std::string> about{
      {"engine", witness.engine}, {"unit", fmt::format("{}", witness.unit)}, {kHash, witness.hash}};
  if (witness.lr) about["lr"] = fmt::format("{}", *witness.lr);
  const std::vector<int64_t> shape{witness.inputs->rows, witness.inputs->seq};
  std::vector<TensorEntry> entries{{"tokens", "I32", shape}, {"targets", "I32", shape}};
  for (const NamedNumbers& tensor : all) entries.push_back({tensor.name, "F64", tensor.shape});
  AtomicFile file(path);
  SafetensorsWriter writer(file, entries, about);
  for (const std::vector<int32_t>* values : {&witness.inputs->tokens, &witness.inputs->targets})
    writer.write(std::as_bytes(std::span(*values)));
  for (const NamedNumbers& tensor : all) writer.write(std::as_bytes(std::span(tensor.values)));
  writer.finish();
  file.commit();
}

void check_same_inputs(const Witness& witness, const VerifyInputs& inputs, std::optional<double> lr) {
  if (!witness.hash.empty() && witness.hash != inputs.hash())
    throw_error(ErrorCode::invalid,
                "not the same inputs, nothing was compared: {}: hash of the tokens and targets, expected {}, got {}",
                witness.path, witness.hash, inputs.hash());
  if (witness.lr && lr && *witness.lr != *lr)
    throw_error(ErrorCode::invalid, "not the same inputs, nothing was compared: {}: lr, expected {}, got {}",
                witness.path, *witness.lr, *lr);
}

}  // namespace lamina
