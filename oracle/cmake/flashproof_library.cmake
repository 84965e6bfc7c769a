# flashproof_add_library(NAME SOURCE...): the static library of one folder.
# Includes are rooted at the project, so every library shows that root to whoever links it.
function(flashproof_add_library name)
  add_library(${name} STATIC ${ARGN})
  target_include_directories(${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/flashproof>)
  target_compile_features(${name} PUBLIC cxx_std_20)
endfunction()
