// The search: every what-if of the table is run in double, on few tokens first, and compared with the other's numbers.
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "migrate/verify_mistakes.h"

namespace lamina {
namespace {

constexpr double kUnexplained = std::numeric_limits<double>::infinity();
constexpr double kSlack = 16.0;      // a what-if rounds otherwise than the model whose rounding was measured
constexpr double kExplained = 0.25;  // what has to be left at most of the gap that is to be explained
constexpr double kQuick = 4e9;       // operations of a forward pass that is simply run on all tokens
constexpr int64_t kFewTokens = 8;

// What the configuration says of numbers.
std::vector<double> settings(const ModelConfig& c) {
  return {c.layer_norm_epsilon,
          c.activation() == Activation::gelu_tanh ? 1.0 : 0.0,
          c.scale_attn_weights ? 1.0 : 0.0,
          c.scale_attn_by_inverse_layer_idx ? 1.0 : 0.0,
          static_cast<double>(c.n_head),
          static_cast<double>(c.n_layer),
          static_cast<double>(c.vocab_size),
          c.tie_word_embeddings ? 1.0 : 0.0};
}

class Search {
 public:
  Search(const MistakeContext& context, const std::function<void(const std::string&)>& say)
      : context_(context), say_(say) {
    const ModelConfig& config = context.model.config;
    const double cost = 2.0 * static_cast<double>(parameter_count(config)) *
                        static_cast<double>(context.inputs.rows * context.inputs.seq);
    const int64_t all = context.inputs.seq;
    for (const int64_t seq : {cost > kQuick ? std::min(all, kFewTokens) : all, all}) {
      few_ = target(seq);
      const std::optional<TensorGap> gap = gap_of_first(few_, first_tokens(context.truth, context.inputs, seq));
      if (seq < all && gap && !gap->fits()) break;  // it shows in the first tokens
    }
    whole_ = target(all);
    const NamedNumbers* truth = find_numbers(context.truth, context.first);
    const NamedNumbers* got = find_numbers(whole_.numbers, context.first);
    if (truth != nullptr && got != nullptr) gap_ = gap_of(whole_.numbers, *got, *truth)->error;
  }

  // The first what-if that agrees to rounding; else the nearest one that nearly does.
  Cause run() {
    Cause out;
    if (find_numbers(whole_.numbers, context_.first) == nullptr) return out;  // a gradient: no what-if computes any
    double best = kSlack;
    for (const Mistake& mistake : mistakes()) {
      std::vector<Candidate> candidates;
      mistake.candidates(context_, candidates);
      for (const Candidate& candidate : candidates) {
        ++out.tested;
        if (!possible(candidate)) continue;
        say_(fmt::format("trying {}: {}", mistake.what, candidate.what));
        const double left = gap_left(candidate);
        if (left >= best) continue;
        best = left;
        out.id = mistake.id;
        out.what = fmt::format("{}: {}", mistake.what, candidate.what);
        if (best <= 1.0) return out;
      }
    }
    return out;
  }

 private:
  struct Target {
    VerifyInputs inputs;
    Numbers numbers;  // stream, logits and, of whole rows, the loss
  };

  Target target(int64_t seq) const {
    Target out{lamina::first_tokens(context_.inputs, seq), first_tokens(*context_.other.numbers, context_.inputs, seq)};
    const NamedNumbers* loss = find_numbers(*context_.other.numbers, "loss");
    if (seq == context_.inputs.seq && loss != nullptr) out.numbers.push_back(*loss);
    return out;
  }

  std::vector<TensorGap> compare(const Target& target, const Numbers& got) const {
    return compare_numbers(target.numbers, got, context_.tolerances, context_.other.unit + kUnit64);
  }

  // Of the tensor that differs first.
  std::optional<TensorGap> gap_of_first(const Target& target, const Numbers& got) const {
    for (TensorGap& gap : compare(target, got))
      if (gap.tensor == context_.first) return std::move(gap);
    return {};
  }

  // Where the other's weights and settings are known, a what-if that makes others than those is none.
  bool possible(const Candidate& candidate) const {
    if (candidate.seen) return true;
    WhatIf model(context_.model);
    candidate.apply(model);
    if (context_.other.config) {
      const std::vector<double> own = settings(context_.model.config), made = settings(model.config),
                                theirs = settings(*context_.other.config);
      for (size_t i = 0; i < own.size(); ++i)
        if (made[i] != own[i] && made[i] != theirs[i]) return false;
    }
    const auto equal = [&](const std::string& name) {
      const auto theirs = context_.other.weights.find(name);
      return theirs == context_.other.weights.end() || *theirs->second == model[name];
    };
    return std::all_of(model.changed().begin(), model.changed().end(), equal);
  }

  // In parts of the tolerance, for each tensor; infinite where the first one's gap is not explained.
  double left_of(const TensorGap& gap) const {
    if (gap.tensor == context_.first && gap.error > kExplained * gap_) return kUnexplained;
    return gap.error / gap.tolerance;
  }

  // The largest of all. First as far as the tensor that differed first, then everything.
  double gap_left(const Candidate& candidate) const {
    if (candidate.seen) return candidate.seen() ? 0.0 : kUnexplained;
    WhatIf model(context_.model);
    candidate.apply(model);
    const Target& target = candidate.all_tokens ? whole_ : few_;
    const int64_t layers = layer_of(context_.first) + 1;
    const bool early = layers > 0 || context_.first == "embedding";
    if (early && layers > model.config.n_layer) return kUnexplained;
    if (early) {
      const std::optional<TensorGap> gap =
          gap_of_first(target, reference_numbers<double>(model, target.inputs, {false, layers}));
      if (!gap || left_of(*gap) >= kSlack) return kUnexplained;
    }
    double most = 0.0;
    bool found = false;
    for (const TensorGap& gap : compare(target, reference_numbers<double>(model, target.inputs, {false, -1}))) {
      most = std::max(most, left_of(gap));
      found = found || gap.tensor == context_.first;
    }
    return found ? most : kUnexplained;
  }

  const MistakeContext& context_;
  const std::function<void(const std::string&)>& say_;
  Target few_, whole_;
  double gap_ = 0.0;
};

}  // namespace

Cause find_cause(const MistakeContext& context, const std::function<void(const std::string&)>& say) {
  return Search(context, say).run();
}

}  // namespace lamina
