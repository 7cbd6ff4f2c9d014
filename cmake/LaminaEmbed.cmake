# lamina_embed(target file name): the text of a file as `constexpr char name[]` in the header "embedded/<name>.h".
function(lamina_embed target file name)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} text)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/embedded/${name}.h
       CONTENT "#pragma once\ninline constexpr char @name@[] = R\"embedded(@text@)embedded\";\n" @ONLY)
  target_include_directories(${target} PRIVATE ${CMAKE_BINARY_DIR})
endfunction()
