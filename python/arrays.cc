#include "arrays.h"

#include <nanobind/stl/vector.h>

#include <algorithm>

#include "base/error.h"
#include "train/batches.h"

namespace nb = nanobind;

namespace lamina::python {
namespace {

using FloatArray = nb::ndarray<nb::array_api, float, nb::device::cpu>;

std::optional<MaskType> mask_type(nb::dlpack::dtype type) {
  using Code = nb::dlpack::dtype_code;
  struct Known {
    Code code;
    uint8_t bits;
    MaskType type;
  };
  constexpr Known kKnown[] = {
      {Code::Bool, 8, MaskType::u8},    {Code::Int, 8, MaskType::i8},       {Code::Int, 16, MaskType::i16},
      {Code::Int, 32, MaskType::i32},   {Code::Int, 64, MaskType::i64},     {Code::UInt, 8, MaskType::u8},
      {Code::UInt, 16, MaskType::u16},  {Code::UInt, 32, MaskType::u32},    {Code::UInt, 64, MaskType::u64},
      {Code::Float, 16, MaskType::f16}, {Code::Bfloat, 16, MaskType::bf16}, {Code::Float, 32, MaskType::f32},
      {Code::Float, 64, MaskType::f64}};
  for (const Known& known : kKnown)
    if (static_cast<uint8_t>(known.code) == type.code && known.bits == type.bits && type.lanes == 1) return known.type;
  return std::nullopt;
}

}  // namespace

nb::object as_numpy(nb::object array) {
  try {
    return nb::module_::import_("numpy").attr("asarray")(array);
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_ImportError)) throw;
    return array;
  }
}

Ids::Ids(const nb::object& from, const char* what, const char* within) : what_(what), within_(within) {
  if (PyList_Check(from.ptr()) || PyTuple_Check(from.ptr()))
    read_lists(from);
  else if (!nb::try_cast(from, array_))
    refuse();
  else
    read_array();
}

void Ids::refuse() const {
  throw_error(
      ErrorCode::invalid,
      "{} have the wrong type: expected int32 or int64 in a contiguous array of two dimensions, or rows in a list",
      what_);
}

void Ids::read_lists(const nb::object& from) {
  std::vector<std::vector<int64_t>> lists;
  if (!nb::try_cast(from, lists)) refuse();
  rows_ = lists.size();
  width_ = lists.empty() ? 0 : lists.front().size();
  std::vector<int64_t> all;
  for (size_t r = 0; r < rows_; ++r) {
    if (lists[r].size() != width_)
      throw_error(ErrorCode::invalid, "rows of different lengths: row {}, expected {} {}, got {}", r, width_, what_,
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
    refuse();
}

void Ids::narrow(const int64_t* wide) {
  copy_.resize(rows_ * width_);
  for (size_t i = 0; i < copy_.size(); ++i) {
    if (wide[i] > INT32_MAX || wide[i] < INT32_MIN)
      throw_error(ErrorCode::invalid, "{} outside the {}: row {}, position {}, expected below 2147483648, got {}",
                  what_, within_, i / width_, i % width_, wide[i]);
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

MaskArray::MaskArray(const nb::object& from) {
  const bool listed = PyList_Check(from.ptr()) || PyTuple_Check(from.ptr());
  if (listed && (read_lists(from, MaskType::i64, integers_) || read_lists(from, MaskType::f64, floats_))) return;
  std::optional<MaskType> type;
  if (!listed && nb::try_cast(from, array_)) type = mask_type(array_.dtype());
  if (!type)
    throw_error(ErrorCode::invalid,
                "attention mask has the wrong type: expected bool, an integer or a float of up to 64 bits in an array, "
                "or rows in a list");
  view_ = {array_.data(), *type, {}, {}};
  for (size_t axis = 0; axis < array_.ndim(); ++axis) {
    view_.shape.push_back(static_cast<int64_t>(array_.shape(axis)));
    view_.strides.push_back(array_.stride(axis));
  }
}

template <typename T>
bool MaskArray::read_lists(const nb::object& from, MaskType type, std::vector<T>& copy) {
  std::vector<std::vector<T>> lists;
  if (!nb::try_cast(from, lists)) return false;
  const size_t width = lists.empty() ? 0 : lists.front().size();
  for (size_t r = 0; r < lists.size(); ++r) {
    if (lists[r].size() != width)
      throw_error(ErrorCode::invalid, "rows of different lengths: row {} of the attention mask, expected {}, got {}", r,
                  width, lists[r].size());
    copy.insert(copy.end(), lists[r].begin(), lists[r].end());
  }
  const auto columns = static_cast<int64_t>(width);
  view_ = {copy.data(), type, {std::ssize(lists), columns}, {columns, 1}};
  return true;
}

Batch::Batch(const nb::object& ids, const nb::object& targets) : ids_(ids) {
  if (targets.is_none()) {
    shift();
    return;
  }
  targets_.emplace(targets, "targets");
  if (targets_->rows() != ids_.rows() || targets_->width() != ids_.width())
    throw_error(ErrorCode::invalid, "targets have another shape than ids: expected ({}, {}), got ({}, {})", ids_.rows(),
                ids_.width(), targets_->rows(), targets_->width());
  for (size_t r = 0; r < ids_.rows(); ++r) rows_.push_back({ids_.row(r), targets_->row(r)});
}

Batch::Batch(const nb::object& ids) : ids_(ids), ignored_(ids_.width(), -1) {
  for (size_t r = 0; r < ids_.rows(); ++r) rows_.push_back({ids_.row(r), ignored_});
}

// A copy that may be written to, from the first time on.
std::span<int32_t> Batch::own_targets(size_t r) {
  const size_t width = rows_[r].targets.size();
  own_targets_.resize(rows_.size() * width);
  const std::span<int32_t> own = std::span(own_targets_).subspan(r * width, width);
  if (rows_[r].targets.data() != own.data()) std::copy(rows_[r].targets.begin(), rows_[r].targets.end(), own.begin());
  rows_[r].targets = own;
  return own;
}

void Batch::attend(const nb::object& mask, const nb::object& positions) {
  const size_t width = ids_.width();
  if (!positions.is_none()) {
    positions_.emplace(positions, "position_ids", "context");
    const size_t rows = positions_->rows();
    if ((rows != ids_.rows() && rows != 1) || positions_->width() != width)
      throw_error(ErrorCode::invalid, "position_ids have another shape than ids: expected ({}, {}), got ({}, {})",
                  ids_.rows(), width, rows, positions_->width());
    for (size_t r = 0; r < rows_.size(); ++r)
      rows_[r].positions = positions_->row(rows == 1 ? 0 : r).first(rows_[r].tokens.size());
  }
  if (mask.is_none()) return;
  key_begin_ = key_begin_of(MaskArray(mask).view(), static_cast<int64_t>(ids_.rows()), static_cast<int64_t>(width));
  for (size_t r = 0; r < rows_.size(); ++r) {
    const std::span<const int32_t> own = std::span(key_begin_).subspan(r * width, width);
    rows_[r].key_begin = own.first(rows_[r].tokens.size());
    hide_targets(own, own_targets(r));
  }
}

void Batch::isolate(int32_t document_end) {
  const size_t width = rows_.empty() ? 0 : rows_.front().tokens.size();
  borders_.resize(rows_.size() * width);
  for (size_t r = 0; r < rows_.size(); ++r)
    rows_[r].borders =
        isolate_documents(rows_[r].tokens, document_end, own_targets(r), std::span(borders_).subspan(r * width, width));
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
  return as_numpy(nb::cast(FloatArray(view.data, 3, shape, owner, strides)));
}

nb::dict as_dict(std::vector<HfArray> arrays) {
  nb::dict out;
  for (HfArray& array : arrays) {
    auto* values = new std::vector<float>(std::move(array.values));
    const nb::capsule owner(values, [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
    out[array.name.c_str()] =
        as_numpy(nb::cast(FloatArray(values->data(), array.shape.size(), array.shape.data(), owner)));
  }
  return out;
}

}  // namespace lamina::python
