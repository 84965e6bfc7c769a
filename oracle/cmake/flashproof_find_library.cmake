# Finds a C library by its header and file and makes an imported target of it. Shared by the Find modules beside this
# file.
include(FindPackageHandleStandardArgs)

# flashproof_find_library(PACKAGE NAME [linked target ...])
#   Searches for NAME.h and libNAME; defines PACKAGE_FOUND and the target PACKAGE::PACKAGE, which links the targets
#   given. With FLASHPROOF_STATIC only the archive libNAME.a will do; it has a cache entry of its own, so that the
#   option may change in a build folder.
macro(flashproof_find_library package name)
  find_path(${package}_INCLUDE_DIR ${name}.h)
  if(FLASHPROOF_STATIC)
    set(${package}_FILE ${package}_ARCHIVE)
    find_library(${package}_ARCHIVE lib${name}.a)
  else()
    set(${package}_FILE ${package}_LIBRARY)
    find_library(${package}_LIBRARY ${name})
  endif()
  mark_as_advanced(${package}_INCLUDE_DIR ${${package}_FILE})
  find_package_handle_standard_args(${package} REQUIRED_VARS ${${package}_FILE} ${package}_INCLUDE_DIR)
  if(${package}_FOUND AND NOT TARGET ${package}::${package})
    add_library(${package}::${package} UNKNOWN IMPORTED)
    set_target_properties(${package}::${package} PROPERTIES
      IMPORTED_LOCATION "${${${package}_FILE}}"
      INTERFACE_INCLUDE_DIRECTORIES "${${package}_INCLUDE_DIR}"
      INTERFACE_LINK_LIBRARIES "${ARGN}")
  endif()
endmacro()
