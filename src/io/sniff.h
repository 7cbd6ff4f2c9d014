// What a file is, by its first bytes and never by its name. It recognises what people really find under a model's name;
// it reads none of these formats.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace lamina {

// Throws Error(invalid) where the bytes are a Git LFS pointer (naming the size it points to) or a page of HTML or XML:
// downloads that did not bring the file. `expected` says what should be here: "a safetensors file".
void refuse_foreign_file(std::span<const std::byte> bytes, const std::string& where, const std::string& expected);

// The name of a known other format ("torch zip file", "pickle", "GGUF file" …), or empty.
std::string known_format(std::span<const std::byte> bytes);

}  // namespace lamina
