#include "io/element_type.h"

namespace lamina {
namespace {

constexpr ElementType kTypes[] = {
    {"F64", 8, "DoubleStorage", "float64", "Float64", "f8"},
    {"F32", 4, "FloatStorage", "float32", "Float32", "f4"},
    {"F16", 2, "HalfStorage", "float16", "Float16", "f2"},
    {"BF16", 2, "BFloat16Storage", "bfloat16", "BFloat16", ""},
    {"I64", 8, "LongStorage", "int64", "Int64", "i8"},
    {"I32", 4, "IntStorage", "int32", "Int32", "i4"},
    {"I16", 2, "ShortStorage", "int16", "Int16", "i2"},
    {"I8", 1, "CharStorage", "int8", "Int8", "i1"},
    {"U64", 8, "", "uint64", "UInt64", "u8"},
    {"U32", 4, "", "uint32", "UInt32", "u4"},
    {"U16", 2, "", "uint16", "UInt16", "u2"},
    {"U8", 1, "ByteStorage", "uint8", "UInt8", "u1"},
    {"BOOL", 1, "BoolStorage", "bool", "Bool", "b1"},
    {"C64", 8, "ComplexFloatStorage", "complex64", "", "c8"},
    {"F8_E5M2", 1, "", "float8_e5m2", "", ""},
    {"F8_E4M3", 1, "", "float8_e4m3fn", "", ""},
    {"F8_E5M2FNUZ", 1, "", "float8_e5m2fnuz", "", ""},
    {"F8_E4M3FNUZ", 1, "", "float8_e4m3fnuz", "", ""},
    {"F8_E8M0", 1, "", "float8_e8m0fnu", "", ""},
};

}  // namespace

std::span<const ElementType> element_types() { return kTypes; }

const ElementType* find_type(std::string_view ElementType::*field, std::string_view text) {
  if (text.empty()) return nullptr;
  for (const ElementType& type : kTypes)
    if (type.*field == text) return &type;
  return nullptr;
}

}  // namespace lamina
