#include "migrate/conversion_plan.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "io/quote.h"

namespace lamina {
namespace {

// Where each parameter lies in the source.
struct Place {
  const ModelTensor* tensor;
  const ParameterView* view;
};

std::map<size_t, Place> places_of(const std::vector<ModelTensor>& source) {
  std::map<size_t, Place> out;
  for (const ModelTensor& tensor : source)
    for (const ParameterView& view : tensor.what.parts) out[view.spec] = {&tensor, &view};
  return out;
}

// K and N of a parameter.
int64_t columns_of(const ParameterView& view) { return view.heads * view.depth; }
int64_t rows_of(const ProfileTensor& tensor, const ParameterView& view) {
  return elements_of(tensor) / std::ssize(tensor.parts) / columns_of(view);
}

// Which dimension is the fast one; the same for vectors.
bool runs_along_k(const ParameterView& view) { return view.stride_k == 1; }

// Of the first tensor that there is: all models have a table of tokens.
std::string type_of(const std::vector<ModelTensor>& source) {
  const auto at = std::find_if(source.begin(), source.end(), [](const ModelTensor& t) { return t.stored != nullptr; });
  return at == source.end() ? "F32" : at->stored->dtype;
}

class Planner {
 public:
  Planner(const std::vector<ModelTensor>& source, const std::string& dtype)
      : places_(places_of(source)), dtype_(dtype), type_of_zeros_(type_of(source)) {}

  PlannedTensor plan(const TargetTensor& target) {
    PlannedTensor out{
        .target = {target.name, dtype_, target.what.shape}, .from = {}, .moves = {}, .constant = {}, .operation = {}};
    words_.clear();
    for (const ParameterView& view : target.what.parts) add(target, view, out);
    if (out.from.empty()) {
      if (out.target.dtype.empty()) out.target.dtype = type_of_zeros_;
      out.operation = "zeros";
      return out;
    }
    for (const ModelTensor* tensor : out.from)
      if (tensor->what.parts.size() > target.what.parts.size()) words_.insert("split");
    if (out.from.size() > 1) words_.insert("join");
    choose_type(out);
    if (words_.empty() || (words_.size() == 1 && words_.contains("cast"))) out.moves.clear();
    for (const std::string& word : words_) out.operation += (out.operation.empty() ? "" : ", ") + word;
    if (out.operation.empty()) out.operation = "copy";
    return out;
  }

 private:
  void add(const TargetTensor& target, const ParameterView& view, PlannedTensor& out) {
    const Place& place = places_.at(view.spec);
    if (place.tensor->stored == nullptr) return;
    const auto at = std::find(out.from.begin(), out.from.end(), place.tensor);
    const auto from = static_cast<size_t>(at - out.from.begin());
    if (at == out.from.end()) out.from.push_back(place.tensor);
    const Move move{.from = *place.view,
                    .to = view,
                    .rows = rows_of(target.what, view),
                    .columns = std::min(columns_of(*place.view), columns_of(view))};
    out.moves.push_back({from, move});
    if (runs_along_k(move.from) != runs_along_k(move.to)) words_.insert("transpose");
    if (move.from.even() != move.to.even()) words_.insert("regroup heads");
    if (columns_of(*place.view) > columns_of(view)) words_.insert("trim");
    if (columns_of(*place.view) < columns_of(view)) words_.insert("pad");
  }

  void choose_type(PlannedTensor& out) {
    const StoredTensor& first = *out.from.front()->stored;
    for (const ModelTensor* tensor : out.from) {
      if (!dtype_.empty() && tensor->stored->dtype != dtype_) words_.insert("cast");
      if (dtype_.empty() && tensor->stored->dtype != first.dtype)
        throw Error(ErrorCode::invalid,
                    fmt::format("cannot convert: {} and {} become parts of {}: expected one type, got {} and {}",
                                quote_text(first.name), quote_text(tensor->stored->name), quote_text(out.target.name),
                                first.dtype, tensor->stored->dtype),
                    "--dtype fp32 makes all tensors fp32");
    }
    if (dtype_.empty()) out.target.dtype = first.dtype;
  }

  const std::map<size_t, Place> places_;
  const std::string& dtype_;
  const std::string type_of_zeros_;
  std::set<std::string> words_;
};

}  // namespace

std::vector<PlannedTensor> plan_conversion(const std::vector<ModelTensor>& source,
                                           const std::vector<TargetTensor>& target, const std::string& dtype) {
  Planner planner(source, dtype);
  std::vector<PlannedTensor> out;
  for (const TargetTensor& tensor : target) out.push_back(planner.plan(tensor));
  return out;
}

}  // namespace lamina
