// What names, shapes and types of a file of weights say about a move. A rule that many tensors meet is one finding, at
// the first of them, with their number.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "io/quote.h"
#include "migrate/lint.h"

namespace lamina {
namespace {

constexpr int64_t kCkptPart = int64_t{512} << 20;

bool has_part(std::string_view name, std::string_view part) {
  for (size_t at = name.find(part); at != std::string_view::npos; at = name.find(part, at + 1)) {
    const size_t end = at + part.size();
    if ((at == 0 || name[at - 1] == '.') && (end == name.size() || name[end] == '.')) return true;
  }
  return false;
}

std::string_view state_of(std::string_view name) {
  for (const std::string_view part :
       {"adam_m", "adam_v", "moment1", "moment2", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"})
    if (has_part(name, part)) return part;
  return {};
}

class TensorLinter {
 public:
  TensorLinter(const TensorContent& content, const std::optional<ModelConfig>& config, const std::string& file)
      : content_(content), config_(config), file_(file) {}

  std::vector<Finding> run() {
    for (const StoredTensor& tensor : content_.tensors) {
      storage(tensor);
      if (const std::string_view state = state_of(tensor.name); !state.empty())
        optimizer(tensor, state);
      else
        weight(tensor);
    }
    if (content_.format == "mindspore-ckpt") add("ckpt-format", "", "a .ckpt of MindSpore");
    if (table_ && head_) add("stored-head", *head_, "a head beside the table" + tie_text());
    for (auto& [rule, count] : counts_)
      if (count.number > 1) found_[count.at].what += fmt::format(" ({} tensors)", count.number);
    return std::move(found_);
  }

 private:
  struct Count {
    size_t at;
    int64_t number = 0;
  };

  void add(std::string_view id, const std::string& tensor, std::string what) {
    const auto [found, fresh] = counts_.try_emplace(std::string(id) + "\n" + std::string(what), Count{found_.size()});
    ++found->second.number;
    if (!fresh) return;
    const LintRule& rule = lint_rule(id);
    found_.push_back({&rule,
                      std::min(rule.severity, Severity::warning),
                      {file_, 0, "tensor", tensor},
                      std::move(what),
                      std::string(rule.pytorch_setting),
                      std::string(rule.mindspore_setting)});
  }

  std::string tie_text() const {
    if (!config_) return "";
    return config_->tie_word_embeddings ? ", though tie_word_embeddings is true"
                                        : "; tie_word_embeddings is false, so it belongs there";
  }

  void storage(const StoredTensor& tensor) {
    const auto& shape = tensor.shape;
    if (std::find(shape.begin(), shape.end(), 0) != shape.end())
      add("zero-size-tensor", tensor.name, "no elements: shape " + shape_text(shape));
    if (shape.empty()) add("scalar-tensor", tensor.name, "a scalar");
    if (tensor.bytes > kCkptPart) add("large-tensor", tensor.name, "above 512 MiB");
    if (tensor.dtype == "F16" || tensor.dtype == "BF16") add("sixteen-bit-weights", tensor.name, tensor.dtype);
  }

  void optimizer(const StoredTensor& tensor, std::string_view state) {
    if (state.starts_with("adam_"))
      add("optimizer-state", tensor.name, "adam_m, adam_v: moments of nn.AdamWeightDecay, which corrects no bias");
    else if (state.starts_with("moment"))
      add("optimizer-state", tensor.name,
          "moment1, moment2: moments of nn.Adam, whose weight_decay is in the gradient");
    else
      add("optimizer-state", tensor.name,
          "exp_avg, exp_avg_sq: moments of AdamW or Adam of PyTorch or experimental.optim");
  }

  void weight(const StoredTensor& tensor) {
    const std::string_view name = tensor.name;
    const std::string_view last = name.substr(name.rfind('.') + 1);
    const bool buffer = last == "masked_bias" || last == "masked_beta" ||
                        (tensor.shape.size() == 4 && (name.ends_with("attn.bias") || name.ends_with("attention.beta")));
    if (buffer)
      add("constant-buffers", tensor.name, "a mask stored as a tensor");
    else if (last == "gamma" || last == "beta" || last == "embedding_table")
      add("parameter-names", tensor.name, "MindSpore's names: gamma, beta, embedding_table");
    for (const std::string_view front : {"transformer.", "backbone.", "module.", "_module.", "_orig_mod."})
      if (name.starts_with(front)) add("name-prefix", tensor.name, fmt::format("names begin with {}", front));
    if (name.ends_with("wte.weight") || name.ends_with("word_embedding.embedding_table") || name == "embedding.token")
      table(tensor);
    if (name.ends_with("lm_head.weight") || name == "head.weight") head_ = tensor.name;
    if (tensor.shape.size() == 2) layout(tensor);
  }

  void table(const StoredTensor& tensor) {
    table_ = tensor.name;
    if (tensor.shape.size() != 2) return;
    const int64_t rows = tensor.shape[0];
    if (config_ && rows > config_->vocab_size)
      add("padded-vocabulary", tensor.name, fmt::format("{} rows, and vocab_size is {}", rows, config_->vocab_size));
    else if (!config_ && rows > 50257 && rows <= 51200 && rows % 64 == 0)
      add("padded-vocabulary", tensor.name, fmt::format("{} rows: GPT-2's vocabulary has 50257", rows));
  }

  void layout(const StoredTensor& tensor) {
    const std::string_view name = tensor.name;
    const int64_t rows = tensor.shape[0], columns = tensor.shape[1];
    if (name.ends_with("attn.c_attn.weight") && (columns == 3 * rows || rows == 3 * columns))
      add("packed-qkv", tensor.name,
          columns == 3 * rows ? "q, k, v side by side, (inputs, outputs)"
                              : "q, k, v one below the other, (outputs, inputs)");
    if (name.ends_with("mlp.c_fc.weight") || name.ends_with("output.mapping.weight") ||
        name.ends_with("mlp.c_proj.weight")) {
      const bool conv1d = (columns > rows) == !name.ends_with("c_proj.weight");
      if (rows != columns)
        add("weight-layout", tensor.name,
            conv1d ? "(inputs, outputs), as Conv1D" : "(outputs, inputs), as nn.Linear and nn.Dense");
    }
    if ((name.ends_with("attn.c_proj.weight") || name.ends_with("attention.projection.weight")) && rows == columns)
      add("weight-layout", tensor.name, "square: its shape does not say which way it lies");
  }

  const TensorContent& content_;
  const std::optional<ModelConfig>& config_;
  const std::string& file_;
  std::optional<std::string> table_, head_;
  std::map<std::string, Count> counts_;  // by rule and words
  std::vector<Finding> found_;
};

}  // namespace

std::vector<Finding> lint_tensors(const TensorContent& content, const std::optional<ModelConfig>& config,
                                  const std::string& file) {
  return TensorLinter(content, config, file).run();
}

}  // namespace lamina
