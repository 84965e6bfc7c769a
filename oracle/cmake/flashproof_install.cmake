# The installed package: find_package(flashproof) gives flashproof::flashproof, which is the public API of reference/
# and oracle/ with the C ABI of kernels. Headers keep their paths ("oracle/value.h") below include/flashproof.
include(CMakePackageConfigHelpers)

add_library(flashproof INTERFACE)
target_link_libraries(flashproof INTERFACE flashproof_oracle flashproof_kernels flashproof_reference)
add_library(flashproof::flashproof ALIAS flashproof)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/flashproof)
install(TARGETS flashproof flashproof_reference flashproof_kernels flashproof_oracle EXPORT flashproof)
install(EXPORT flashproof NAMESPACE flashproof:: DESTINATION ${package_dir} FILE flashproofTargets.cmake)
install(TARGETS flashproof_program)

foreach(folder reference oracle kernels/hardware)
  install(DIRECTORY ${folder}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/flashproof/${folder} FILES_MATCHING PATTERN *.h
          PATTERN cmake EXCLUDE)
endforeach()
install(FILES kernels/flashproof_kernel.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/flashproof/kernels OPTIONAL)

configure_file(oracle/cmake/flashproofConfig.cmake.in flashproofConfig.cmake @ONLY)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/flashproofConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/flashproofConfigVersion.cmake
              ${PROJECT_BINARY_DIR}/flashproofConfig.cmake
              oracle/cmake/flashproof_find_library.cmake
              oracle/cmake/FindGMP.cmake oracle/cmake/FindMPFR.cmake oracle/cmake/FindMPFI.cmake
        DESTINATION ${package_dir})
