// Files of torch.save: the zip archive of torch 1.6 and later, and the row of pickles before it.
//
//   zip      NAME/data.pkl, NAME/byteorder, NAME/data/KEY for each storage, NAME/version, …
//   legacy   | magic | version | system | data | keys of storages | each storage: its count as i64, its bytes |
//              `--------- pickles --------------------------------'
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "io/tensor_content.h"

namespace lamina {

// Throw Error(invalid) that names `where` and what is wrong; nothing in the file is executed.
TensorContent parse_torch_zip(std::span<const std::byte> file, const std::string& where);
TensorContent parse_torch_legacy(std::span<const std::byte> file, const std::string& where);

}  // namespace lamina
