// lamina.save_tensors, lamina.load_tensors: files of weights without a model in memory.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <array>
#include <cstring>

#include "arrays.h"
#include "base/error.h"
#include "bind.h"
#include "io/formats.h"
#include "io/quote.h"
#include "migrate/convert.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace lamina::python {
namespace {

using AnyArray = nb::ndarray<nb::ro, nb::device::cpu>;

struct ArrayType {
  nb::dlpack::dtype_code code;
  uint8_t bits;
  const char* name;  // as files spell it
};

constexpr ArrayType kTypes[] = {{nb::dlpack::dtype_code::Bool, 8, "BOOL"},   {nb::dlpack::dtype_code::Int, 8, "I8"},
                                {nb::dlpack::dtype_code::Int, 16, "I16"},    {nb::dlpack::dtype_code::Int, 32, "I32"},
                                {nb::dlpack::dtype_code::Int, 64, "I64"},    {nb::dlpack::dtype_code::UInt, 8, "U8"},
                                {nb::dlpack::dtype_code::UInt, 16, "U16"},   {nb::dlpack::dtype_code::UInt, 32, "U32"},
                                {nb::dlpack::dtype_code::UInt, 64, "U64"},   {nb::dlpack::dtype_code::Float, 16, "F16"},
                                {nb::dlpack::dtype_code::Float, 32, "F32"},  {nb::dlpack::dtype_code::Float, 64, "F64"},
                                {nb::dlpack::dtype_code::Bfloat, 16, "BF16"}};

const char* type_name(const AnyArray& array) {
  for (const ArrayType& type : kTypes)
    if (static_cast<uint8_t>(type.code) == array.dtype().code && type.bits == array.dtype().bits &&
        array.dtype().lanes == 1)
      return type.name;
  return nullptr;
}

bool is_packed(const AnyArray& array) {
  int64_t step = 1;
  for (size_t axis = array.ndim(); axis-- > 0; step *= static_cast<int64_t>(array.shape(axis)))
    if (array.shape(axis) > 1 && array.stride(axis) != step) return false;
  return true;
}

// The elements in row-major order, whatever their strides: transposed, stepped, reversed.
std::vector<std::byte> packed(const AnyArray& array) {
  const size_t width = array.itemsize();
  std::vector<std::byte> out(array.size() * width);
  std::vector<size_t> index(array.ndim());
  const auto* data = static_cast<const std::byte*>(array.data());
  int64_t at = 0;
  for (size_t i = 0; i < array.size(); ++i) {
    std::memcpy(out.data() + i * width, data + at * static_cast<int64_t>(width), width);
    for (size_t axis = array.ndim(); axis-- > 0;) {
      at += array.stride(axis);
      if (++index[axis] < array.shape(axis)) break;
      at -= array.stride(axis) * static_cast<int64_t>(index[axis]);
      index[axis] = 0;
    }
  }
  return out;
}

WeightFormat format_of(const std::string& id) {
  for (const TargetFormat& format : target_formats())
    if (id == format.id || (id == "safetensors" && format.id == "hf")) return format.container;
  throw_error(ErrorCode::usage, "bad value of format: expected safetensors, torch, mindspore or mindspore-ckpt, got {}",
              quote_text(id));
}

// Arrays of numpy's in the other byte order have no DLPack: a copy in this machine's.
bool as_array(nb::handle value, AnyArray& out) {
  if (nb::try_cast(value, out)) return true;
  if (!nb::hasattr(value, "dtype") || !nb::hasattr(value.attr("dtype"), "newbyteorder")) return false;
  return nb::try_cast(value.attr("astype")(value.attr("dtype").attr("newbyteorder")("=")), out);
}

void save_tensors(const Path& to, const nb::dict& tensors, const std::string& format) {
  const std::string path = to.string();
  const WeightFormat container = format_of(format);
  if (container == WeightFormat::mindspore_ckpt && tensors.size() == 0)
    throw_error(ErrorCode::unsupported, "cannot write MindSpore checkpoint: {}: expected one tensor at least, got none",
                path);
  std::vector<TensorEntry> entries;
  std::vector<AnyArray> arrays;
  for (const auto& [key, value] : tensors) {
    std::string name;
    AnyArray array;
    if (!nb::try_cast(key, name))
      throw_error(ErrorCode::invalid, "cannot save tensors: {}: expected names that are texts, got another key", path);
    const char* type = as_array(value, array) ? type_name(array) : nullptr;
    if (type == nullptr)
      throw_error(ErrorCode::invalid,
                  "cannot save tensors: {}: {}: expected an array of numbers on the host, got another object", path,
                  quote_text(name));
    entries.push_back({name, type, {}});
    for (size_t axis = 0; axis < array.ndim(); ++axis)
      entries.back().shape.push_back(static_cast<int64_t>(array.shape(axis)));
    arrays.push_back(std::move(array));
  }
  const nb::gil_scoped_release release;
  AtomicFile file(path);
  TensorWriter writer(container, file, entries);
  for (const AnyArray& array : arrays) {
    check_signals();
    if (is_packed(array))
      writer.write({static_cast<const std::byte*>(array.data()), array.nbytes()});
    else
      writer.write(packed(array));
  }
  writer.finish();
  file.commit();
}

nb::object as_object(const StoredTensor& tensor) {
  const auto* type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                  [&](const ArrayType& row) { return tensor.dtype == row.name; });
  if (type == std::end(kTypes))
    throw_error(ErrorCode::unsupported, "no array holds tensor {}: expected a type that DLPack has, got {}",
                quote_text(tensor.name), tensor.dtype);
  auto* bytes = new std::vector<std::byte>();
  const nb::capsule owner(bytes, [](void* p) noexcept { delete static_cast<std::vector<std::byte>*>(p); });
  bytes->reserve(static_cast<size_t>(tensor.bytes));
  for_each_part(tensor,
                [&](std::span<const std::byte> part) { bytes->insert(bytes->end(), part.begin(), part.end()); });
  const std::vector<size_t> shape(tensor.shape.begin(), tensor.shape.end());
  const nb::dlpack::dtype dtype{static_cast<uint8_t>(type->code), type->bits, 1};
  nb::object array = nb::cast(
      nb::ndarray<nb::array_api, nb::device::cpu>(bytes->data(), shape.size(), shape.data(), owner, nullptr, dtype));
  return tensor.dtype == "BF16" ? array : as_numpy(std::move(array));  // numpy has no such type
}

nb::dict load_tensors(const Path& path) {
  const WeightFiles weights = open_weights(path.string());
  nb::dict out;
  for (const TensorFile& file : weights.files) {
    check_sums(file.content(), file.path());
    for (const StoredTensor& tensor : file.content().tensors) {
      out[tensor.name.c_str()] = as_object(tensor);
      file.forget(tensor);
    }
  }
  return out;
}

}  // namespace

void bind_files(nb::module_& m) {
  m.def("save_tensors", &save_tensors, "path"_a, "tensors"_a, nb::kw_only(), "format"_a = "safetensors");
  m.def("load_tensors", &load_tensors, "path"_a);
}

}  // namespace lamina::python
