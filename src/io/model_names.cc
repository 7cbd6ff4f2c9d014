#include "io/model_names.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "io/quote.h"
#include "io/widen.h"

namespace lamina {
namespace {

using Parts = std::vector<std::string>;

constexpr std::string_view kWrappers[] = {
    "module", "_module", "_orig_mod", "_forward_module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"};

Parts split(std::string_view name) {
  Parts parts;
  for (size_t at = 0; at <= name.size();) {
    const size_t dot = std::min(name.find('.', at), name.size());
    parts.emplace_back(name.substr(at, dot - at));
    at = dot + 1;
  }
  return parts;
}

// Each part with a dot behind it: "a.b.".
std::string join(const Parts& parts, size_t begin, size_t end) {
  std::string out;
  for (size_t i = begin; i < end; ++i) out += parts[i] + ".";
  return out;
}

bool is_wrapper(std::string_view part) {
  return std::find(std::begin(kWrappers), std::end(kWrappers), part) != std::end(kWrappers);
}

std::string without_last_dot(std::string text) {
  text.pop_back();
  return text;
}

int64_t count_parts(std::string_view name) { return 1 + std::count(name.begin(), name.end(), '.'); }

// Names and shapes of a GPT-2 in one profile: outside the layers, and within one.
struct Vocabulary {
  const NameProfile& profile;
  std::map<std::string, std::vector<int64_t>, std::less<>> outer;
  std::map<std::string, std::vector<int64_t>, std::less<>> layer;
  std::vector<std::string> before_layers, in_layer, behind_layers;  // in the profile's order
  size_t most_parts = 0;                                            // of a name

  Vocabulary(const NameProfile& names, ModelConfig config) : profile(names) {
    config.n_layer = 1;  // all layers are alike
    config.tie_word_embeddings = config.tie_word_embeddings || profile.head.empty();
    for (const ProfileTensor& tensor : profile_tensors(profile, config)) {
      const bool inner = layer_of(tensor.name).has_value();
      const std::string name = inner ? layer_rest(tensor.name) : tensor.name;
      most_parts = std::max(most_parts, static_cast<size_t>(count_parts(tensor.name)));
      std::vector<std::string>& order = inner ? in_layer : layer.empty() ? before_layers : behind_layers;
      order.push_back(name);
      (inner ? layer : outer).emplace(name, tensor.shape);
    }
  }

  // "h.12.rest" -> 12; nothing for another form. Leading zeros are another form.
  std::optional<int64_t> layer_of(std::string_view name) const {
    if (!name.starts_with(profile.layers)) return std::nullopt;
    int64_t number = 0;
    const char* begin = name.data() + profile.layers.size();
    const char* end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(begin, end, number);
    if (error != std::errc() || stop == end || *stop != '.' || number < 0 || number > 1000000000) return std::nullopt;
    if (std::to_string(number).size() != static_cast<size_t>(stop - begin)) return std::nullopt;
    return number;
  }

  std::string layer_rest(std::string_view name) const {  // "h.12.rest" -> "rest"
    return std::string(name.substr(name.find('.', profile.layers.size()) + 1));
  }

  bool is_head(std::string_view name) const { return !profile.head.empty() && name == profile.head; }

  // The shape of a constant buffer of a layer; nothing for another name.
  std::optional<std::vector<int64_t>> buffer_shape(std::string_view rest, int64_t T) const {
    if (!profile.causal.empty() && rest == profile.causal) return std::vector<int64_t>{1, 1, T, T};
    if (!profile.masked.empty() && rest == profile.masked) return std::vector<int64_t>{};
    return std::nullopt;
  }

  // Whether these parts are the whole name of something a GPT-2's file may hold, the head aside.
  bool knows(std::string_view name) const {
    if (!layer_of(name)) return !is_head(name) && outer.contains(name);
    const std::string rest = layer_rest(name);
    return layer.contains(rest) || buffer_shape(rest, 1);
  }
};

// One tensor's name: as it is, and without wrappers.
struct Name {
  Parts raw;
  Parts plain;
  std::string text;                  // plain, joined
  std::optional<std::string> front;  // what stands before a GPT-2's name, where one is found
};

Parts without_wrappers(const Parts& raw) {
  Parts plain;
  for (size_t i = 0; i < raw.size(); ++i)
    if (i + 1 == raw.size() || !is_wrapper(raw[i])) plain.push_back(raw[i]);
  return plain;
}

Name analyse(const std::string& raw, const Vocabulary& vocabulary) {
  Name name{.raw = split(raw), .plain = {}, .text = {}, .front = {}};
  name.plain = without_wrappers(name.raw);
  name.text = without_last_dot(join(name.plain, 0, name.plain.size()));
  // A GPT-2's own name has few parts; only that many last ones are looked at, whatever a stranger wrote.
  const size_t count = name.plain.size();
  const size_t most = vocabulary.most_parts;
  for (size_t i = count > most ? count - most : 0; i < count && !name.front; ++i)
    if (vocabulary.knows(without_last_dot(join(name.plain, i, name.plain.size())))) name.front = join(name.plain, 0, i);
  return name;
}

// The front part that most names have; of two as frequent, the usual one.
std::string common_front(const std::vector<Name>& names, std::string_view usual) {
  std::map<std::string, int64_t> counts;
  for (const Name& name : names)
    if (name.front) ++counts[*name.front];
  std::string best(usual);
  int64_t most = counts.contains(best) ? counts[best] : 0;
  for (const auto& [front, count] : counts)
    if (count > most) best = front, most = count;
  return best;
}

class Matcher {
 public:
  Matcher(const std::vector<FileTensor>& tensors, const ModelConfig& config, const NameProfile& profile, bool biases)
      : tensors_(tensors), config_(config), biases_(biases), head_(profile.head), vocabulary_(profile, config) {
    for (const FileTensor& tensor : tensors) names_.push_back(analyse(tensor.name, vocabulary_));
    const std::string usual(profile.front);
    front_ = common_front(names_, usual);
    const bool ends_usual = front_ == usual || front_.ends_with("." + usual);
    parent_ = ends_usual ? front_.substr(0, front_.size() - usual.size()) : front_;
  }

  NameMatch run() {
    for (size_t i = 0; i < tensors_.size(); ++i) place(i);
    count_layers();
    take_head_for_table();
    collect_wanted();
    check_head();
    for (size_t i = 0; i < tensors_.size(); ++i)
      if (used_.contains(i)) note_removed(names_[i]);
    std::stable_sort(out_.problems.begin(), out_.problems.end(),
                     [](const NameProblem& a, const NameProblem& b) { return a.kind < b.kind; });
    return std::move(out_);
  }

 private:
  template <typename... Args>
  void problem(ProblemKind kind, fmt::format_string<Args...> format, Args&&... args) {
    out_.problems.push_back({kind, fmt::format(format, std::forward<Args>(args)...)});
  }

  std::string quoted_name(size_t i) const { return quote_text(tensors_[i].name); }

  bool is_head(const Name& name) const { return !head_.empty() && name.text == parent_ + head_; }

  // Decides what tensor i is.
  void place(size_t i) {
    const Name& name = names_[i];
    if (is_head(name)) return claim(head_, i);
    if (name.text.starts_with(front_)) {
      const std::string rest = name.text.substr(front_.size());
      const std::optional<int64_t> layer = vocabulary_.layer_of(rest);
      if (layer) layers_.insert(*layer);
      if (layer && *layer >= config_.n_layer) return;  // told by count_layers
      if (vocabulary_.knows(rest)) {
        const bool buffer = layer && !vocabulary_.layer.contains(vocabulary_.layer_rest(rest));
        return buffer ? place_buffer(i, vocabulary_.layer_rest(rest)) : claim(rest, i);
      }
    }
    if (name.front && *name.front != front_)
      foreign_.push_back(i);
    else
      problem(ProblemKind::extra, "{} {} is no tensor of this model", quoted_name(i), shape_text(tensors_[i].shape));
  }

  void place_buffer(size_t i, const std::string& rest) {
    const FileTensor& tensor = tensors_[i];
    const std::vector<int64_t> expected = *vocabulary_.buffer_shape(rest, config_.n_positions);
    if (tensor.shape != expected)
      problem(ProblemKind::misshapen, "{} has shape {}, expected {} of this constant buffer", quoted_name(i),
              shape_text(tensor.shape), shape_text(expected));
    else
      out_.ignored.push_back(tensor.name);
    used_.insert(i);
  }

  void claim(const std::string& wanted, size_t i) {
    used_.insert(i);
    const auto [at, fresh] = found_.emplace(wanted, i);
    if (!fresh) problem(ProblemKind::doubled, "{} and {} are the same tensor", quoted_name(at->second), quoted_name(i));
  }

  // What saves a tied tensor once may keep the head's name of the two: safetensors' save_model takes the first by
  // letters.
  void take_head_for_table() {
    const auto head = found_.find(head_);
    if (!config_.tie_word_embeddings || head_.empty() || head == found_.end()) return;
    if (found_.emplace(vocabulary_.profile.token, head->second).second) found_.erase(head);
  }

  // "h.3.*, h.4.*, … (7 in all)" of the first few layers.
  std::string layer_names(const std::vector<int64_t>& first, int64_t count) const {
    std::string out;
    for (const int64_t layer : first)
      out += fmt::format("{}{}{}{}.*", out.empty() ? "" : ", ", front_, vocabulary_.profile.layers, layer);
    return count > static_cast<int64_t>(first.size()) ? fmt::format("{}, … ({} in all)", out, count) : out;
  }

  // The number of layers in the file against n_layer. Loops over what the file holds, never over what a config claims.
  void count_layers() {
    constexpr size_t kShown = 3;
    std::vector<int64_t> absent, beyond;
    int64_t inside = 0, beyond_count = 0, next = 0;
    for (const int64_t layer : layers_) {
      if (layer >= config_.n_layer) {
        if (++beyond_count <= static_cast<int64_t>(kShown)) beyond.push_back(layer);
        continue;
      }
      ++inside;
      for (; next < layer && absent.size() < kShown; ++next) absent.push_back(next);
      next = layer + 1;
    }
    for (; next < config_.n_layer && absent.size() < kShown; ++next) absent.push_back(next);
    if (absent.empty() && beyond.empty()) return;
    std::string text = fmt::format("n_layer {}, the file holds {} layer{}", config_.n_layer, layers_.size(),
                                   layers_.size() == 1 ? "" : "s");
    if (!absent.empty()) text += ": missing " + layer_names(absent, config_.n_layer - inside);
    if (!beyond.empty()) text += ": no place for " + layer_names(beyond, beyond_count);
    out_.problems.push_back({ProblemKind::layers, text});
  }

  void collect_wanted() {
    for (const size_t i : foreign_) compare_spelling(i);
    for (const std::string& name : vocabulary_.before_layers) want(name, vocabulary_.outer.at(name));
    for (const int64_t layer : layers_)
      if (layer < config_.n_layer)
        for (const std::string& rest : vocabulary_.in_layer)
          want(fmt::format("{}{}.{}", vocabulary_.profile.layers, layer, rest), vocabulary_.layer.at(rest));
    for (const std::string& name : vocabulary_.behind_layers)
      if (!vocabulary_.is_head(name)) want(name, vocabulary_.outer.at(name));
  }

  // A GPT-2's name with another front part: the second spelling of a tensor, or half of a file with two spellings.
  void compare_spelling(size_t i) {
    const std::string rest = names_[i].text.substr(names_[i].front->size());
    const auto at = found_.find(rest);
    if (at != found_.end()) {
      problem(ProblemKind::doubled, "{} and {} are the same tensor", quoted_name(at->second), quoted_name(i));
      return;
    }
    otherwise_spelt_.insert(rest);
    if (spelling_told_) return;
    spelling_told_ = true;
    problem(ProblemKind::doubled, "names of two spellings: {} of {} begin with {}, others do not, as {}",
            std::count_if(names_.begin(), names_.end(), [&](const Name& n) { return n.front == front_; }),
            tensors_.size(), quote_text(front_), quoted_name(i));
  }

  bool may_be_absent(const std::string& name) const {
    const std::string_view norm = vocabulary_.profile.norm_bias;
    return !biases_ && (name.ends_with(".bias") || name.ends_with("." + std::string(norm)));
  }

  // Adds one wanted tensor and checks what the file has for it.
  void want(const std::string& name, const std::vector<int64_t>& shape) {
    const auto at = found_.find(name);
    out_.wanted.push_back({name, shape, at == found_.end() ? -1 : static_cast<int64_t>(at->second)});
    if (at == found_.end()) {
      if (!otherwise_spelt_.contains(name) && !may_be_absent(name))
        problem(ProblemKind::missing, "{} {}", quote_text(front_ + name), shape_text(shape));
      return;
    }
    check_tensor(at->second, name, shape);
  }

  void check_tensor(size_t i, const std::string& name, const std::vector<int64_t>& shape) {
    const FileTensor& tensor = tensors_[i];
    const bool table = name == vocabulary_.profile.token || vocabulary_.is_head(name);
    if (tensor.shape != shape)
      problem(ProblemKind::misshapen, "{} has shape {}, expected {}{}", quoted_name(i), shape_text(tensor.shape),
              shape_text(shape), table ? fmt::format(" (vocab_size {})", config_.vocab_size) : "");
    if (!widens_exactly(tensor.dtype))
      problem(ProblemKind::mistyped, "{} has type {}, expected F32, F16 or BF16", quoted_name(i), tensor.dtype);
  }

  void check_head() {
    const std::vector<int64_t> shape{config_.vocab_size, config_.n_embd};
    const auto at = found_.find(head_);
    if (config_.tie_word_embeddings) {
      if (at == found_.end()) return;
      check_tensor(at->second, head_, shape);
      out_.tied_head = static_cast<int64_t>(at->second);
      return;
    }
    if (head_.empty()) {
      problem(ProblemKind::missing, "a head, which tie_word_embeddings false asks for: names of {} have none",
              vocabulary_.profile.id);
      return;
    }
    out_.wanted.push_back({head_, shape, at == found_.end() ? -1 : static_cast<int64_t>(at->second)});
    if (at != found_.end())
      check_tensor(at->second, head_, shape);
    else
      problem(ProblemKind::missing, "{} {}, which tie_word_embeddings false asks for", quote_text(parent_ + head_),
              shape_text(shape));
  }

  // The runs of parts that are not in the usual name, each run once.
  void note_removed(const Name& name) {
    const bool head = is_head(name);
    const size_t front_parts = split(head ? parent_ : front_).size() - 1;
    const bool keep_last = !head && front_ != parent_;
    size_t plain = 0;
    std::string run;
    for (size_t i = 0; i < name.raw.size(); ++i) {
      const bool wrapper = i + 1 < name.raw.size() && is_wrapper(name.raw[i]);
      const bool front = !wrapper && plain < front_parts - (keep_last ? 1 : 0);
      if (!wrapper) ++plain;
      if (wrapper || front) {
        run += name.raw[i] + ".";
        continue;
      }
      if (!run.empty() && std::find(out_.removed.begin(), out_.removed.end(), run) == out_.removed.end())
        out_.removed.push_back(run);
      run.clear();
    }
  }

  const std::vector<FileTensor>& tensors_;
  const ModelConfig& config_;
  const bool biases_;
  const std::string head_;  // empty where the profile has none
  const Vocabulary vocabulary_;
  std::vector<Name> names_;
  std::string front_, parent_;           // before a GPT-2's names; before "transformer." and "lm_head."
  std::map<std::string, size_t> found_;  // name without front -> tensor
  std::set<size_t> used_;                // tensors that are parameters or known buffers
  std::set<int64_t> layers_;             // in the file
  std::vector<size_t> foreign_;          // GPT-2 names with another front
  std::set<std::string> otherwise_spelt_;
  bool spelling_told_ = false;
  NameMatch out_;
};

}  // namespace

std::string problem_name(ProblemKind kind) {
  switch (kind) {
    case ProblemKind::doubled: return "doubled";
    case ProblemKind::layers: return "layers";
    case ProblemKind::missing: return "missing";
    case ProblemKind::extra: return "extra";
    case ProblemKind::misshapen: return "misshapen";
    case ProblemKind::mistyped: return "mistyped";
  }
  LAMINA_CHECK(false, "problem kind {}", static_cast<int>(kind));
}

std::string without_wrappers(const std::string& name) {
  const Parts plain = without_wrappers(split(name));
  return without_last_dot(join(plain, 0, plain.size()));
}

NameMatch match_gpt2_names(const std::vector<FileTensor>& tensors, const ModelConfig& config,
                           const NameProfile& profile, bool biases) {
  return Matcher(tensors, config, profile, biases).run();
}

const NameProfile& detect_profile(const std::vector<FileTensor>& tensors) {
  ModelConfig any;
  any.tie_word_embeddings = true;
  const NameProfile* best = nullptr;
  int64_t most = -1;
  for (const NameProfile& profile : name_profiles()) {
    const Vocabulary vocabulary(profile, any);
    int64_t known = 0;
    for (const FileTensor& tensor : tensors) {
      const Name name = analyse(tensor.name, vocabulary);
      if (!name.front) continue;
      ++known;
      // Names alone do not tell (in, out) from (out, in), where q, k and v lie side by side their shape does.
      if (name.text.ends_with(fmt::format(".{}.weight", profile.q)) && profile.packing != QkvPacking::apart &&
          tensor.shape.size() == 2) {
        const size_t wide = profile.qkv == LinearStorage::in_out ? 1 : 0;
        if (tensor.shape[wide] / 3 == tensor.shape[1 - wide] && tensor.shape[wide] % 3 == 0) ++known;
      }
    }
    if (known > most) most = known, best = &profile;
  }
  return *best;
}

}  // namespace lamina
