#include "arrays.h"

#include <nanobind/stl/vector.h>

#include <algorithm>

#include "base/error.h"
#include "train/batches.h"

namespace nb = nanobind;

namespace lamina::python {
namespace {

using FloatArray = nb::ndarray<nb::array_api, float, nb::device::cpu>;

constexpr const char* kWanted =
    "ids have the wrong type: expected int32 or int64 in a contiguous array of two dimensions, or rows in a list";

nb::object as_numpy(FloatArray array) {
  nb::object out = nb::cast(std::move(array));
  try {
    return nb::module_::import_("numpy").attr("asarray")(out);
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_ImportError)) throw;
    return out;
  }
}

}  // namespace

Ids::Ids(const nb::object& from) {
  if (PyList_Check(from.ptr()) || PyTuple_Check(from.ptr()))
    read_lists(from);
  else if (!nb::try_cast(from, array_))
    throw_error(ErrorCode::invalid, "{}", kWanted);
  else
    read_array();
}

void Ids::read_lists(const nb::object& from) {
  std::vector<std::vector<int64_t>> lists;
  if (!nb::try_cast(from, lists)) throw_error(ErrorCode::invalid, "{}", kWanted);
  rows_ = lists.size();
  width_ = lists.empty() ? 0 : lists.front().size();
  std::vector<int64_t> all;
  for (size_t r = 0; r < rows_; ++r) {
    if (lists[r].size() != width_)
      throw_error(ErrorCode::invalid, "rows of different lengths: row {}, expected {} ids, got {}", r, width_,
                  lists[r].size());
    all.insert(all.end(), lists[r].begin(), lists[r].end());
  }
  narrow(all.data());
}

void Ids::read_array() {
  rows_ = array_.shape(0);
  width_ = array_.shape(1);
  if (array_.dtype() == nb::dtype<int32_t>())
    data_ = static_cast<const int32_t*>(array_.data());
  else if (array_.dtype() == nb::dtype<int64_t>())
    narrow(static_cast<const int64_t*>(array_.data()));
  else
    throw_error(ErrorCode::invalid, "{}", kWanted);
}

void Ids::narrow(const int64_t* wide) {
  copy_.resize(rows_ * width_);
  for (size_t i = 0; i < copy_.size(); ++i) {
    if (wide[i] > INT32_MAX || wide[i] < INT32_MIN)
      throw_error(ErrorCode::invalid,
                  "id outside the vocabulary: row {}, position {}, expected one below 2147483648, got {}", i / width_,
                  i % width_, wide[i]);
    copy_[i] = static_cast<int32_t>(wide[i]);
  }
  data_ = copy_.data();
}

std::optional<std::vector<int32_t>> row_of_ids(nb::handle from) {
  nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu> array;
  std::vector<int64_t> wide;
  const bool listed = nb::try_cast(from, wide);
  if (!listed && !nb::try_cast(from, array)) return std::nullopt;
  if (!listed && array.dtype() == nb::dtype<int32_t>())
    wide.assign(static_cast<const int32_t*>(array.data()), static_cast<const int32_t*>(array.data()) + array.size());
  else if (!listed && array.dtype() == nb::dtype<int64_t>())
    wide.assign(static_cast<const int64_t*>(array.data()), static_cast<const int64_t*>(array.data()) + array.size());
  else if (!listed)
    return std::nullopt;
  std::vector<int32_t> out;
  for (const int64_t id : wide) {
    if (id > INT32_MAX || id < INT32_MIN)
      throw_error(ErrorCode::invalid, "id outside the vocabulary: position {}, expected one below 2147483648, got {}",
                  out.size(), id);
    out.push_back(static_cast<int32_t>(id));
  }
  return out;
}

Batch::Batch(const nb::object& ids, const nb::object& targets) : ids_(ids) {
  if (targets.is_none()) {
    shift();
    return;
  }
  targets_.emplace(targets);
  if (targets_->rows() != ids_.rows() || targets_->width() != ids_.width())
    throw_error(ErrorCode::invalid, "targets have another shape than ids: expected ({}, {}), got ({}, {})", ids_.rows(),
                ids_.width(), targets_->rows(), targets_->width());
  for (size_t r = 0; r < ids_.rows(); ++r) rows_.push_back({ids_.row(r), targets_->row(r)});
}

Batch::Batch(const nb::object& ids) : ids_(ids), ignored_(ids_.width(), -1) {
  for (size_t r = 0; r < ids_.rows(); ++r) rows_.push_back({ids_.row(r), ignored_});
}

void Batch::isolate(int32_t document_end) {
  const size_t width = rows_.empty() ? 0 : rows_.front().tokens.size();
  own_targets_.resize(rows_.size() * width);
  borders_.resize(own_targets_.size());
  for (size_t r = 0; r < rows_.size(); ++r) {
    const std::span<int32_t> targets = std::span(own_targets_).subspan(r * width, width);
    std::copy(rows_[r].targets.begin(), rows_[r].targets.end(), targets.begin());
    rows_[r].borders =
        isolate_documents(rows_[r].tokens, document_end, targets, std::span(borders_).subspan(r * width, width));
    rows_[r].targets = targets;
  }
}

void Batch::shift() {
  if (ids_.width() < 2)
    throw_error(ErrorCode::invalid, "without targets a row needs at least 2 ids, got {}", ids_.width());
  for (size_t r = 0; r < ids_.rows(); ++r)
    rows_.push_back({ids_.row(r).first(ids_.width() - 1), ids_.row(r).subspan(1)});
}

nb::object as_array(const LogitsView& view, size_t width) {
  const size_t shape[3] = {static_cast<size_t>(view.rows), width, static_cast<size_t>(view.vocab)};
  const int64_t strides[3] = {view.row_stride * view.vocab, view.vocab, 1};
  const nb::capsule owner(new std::shared_ptr<Session>(view.session),
                          [](void* p) noexcept { delete static_cast<std::shared_ptr<Session>*>(p); });
  return as_numpy(FloatArray(view.data, 3, shape, owner, strides));
}

nb::dict as_dict(std::vector<HfArray> arrays) {
  nb::dict out;
  for (HfArray& array : arrays) {
    auto* values = new std::vector<float>(std::move(array.values));
    const nb::capsule owner(values, [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
    out[array.name.c_str()] = as_numpy(FloatArray(values->data(), array.shape.size(), array.shape.data(), owner));
  }
  return out;
}

}  // namespace lamina::python
