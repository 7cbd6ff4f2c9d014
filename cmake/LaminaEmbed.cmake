# lamina_embed(target file name): the text of a file as `constexpr char name[]` in the header "embedded/<name>.h".
function(lamina_embed target file name)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} text)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/embedded/${name}.h
       CONTENT "#pragma once\ninline constexpr char @name@[] = R\"embedded(@text@)embedded\";\n" @ONLY)
  target_include_directories(${target} PRIVATE ${CMAKE_BINARY_DIR})
endfunction()

# lamina_embed_folder(target folder name files...): those files of a folder, as pairs of a path in it and a text, in the same way.
function(lamina_embed_folder target folder name)
  set(entries "")
  foreach(file IN LISTS ARGN)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${folder}/${file})
    file(READ ${folder}/${file} text)
    string(APPEND entries "    {\"${file}\", R\"embedded(${text})embedded\"},\n")
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/embedded/${name}.h
       CONTENT "#pragma once\ninline constexpr const char* @name@[][2] = {\n@entries@};\n" @ONLY)
  target_include_directories(${target} PRIVATE ${CMAKE_BINARY_DIR})
endfunction()
