// The types of elements that files hold, a row each with the spelling of every format. Safetensors' spelling is the one
// that the rest of the program uses. What a format does not have is empty.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace lamina {

struct ElementType {
  std::string_view name;           // "F32"
  int64_t bytes;                   // of one element
  std::string_view torch_storage;  // "FloatStorage"
  std::string_view torch_dtype;    // "float32"
  std::string_view mindspore;      // "Float32"
  std::string_view numpy;          // "f4"
};

std::span<const ElementType> element_types();

// The row whose `field` is `text`; null where there is none. find_type(&ElementType::mindspore, "Float32")
const ElementType* find_type(std::string_view ElementType::*field, std::string_view text);

}  // namespace lamina
