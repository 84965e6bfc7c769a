# Run by the build (cmake -P): writes OUTPUT, the C++ source of kernels/embedded_sources.h's table, from ROOTS (device headers
# by their path in SOURCE_DIR) and all that they include by quotes, but the simulator, which only the host compiler sees.
cmake_minimum_required(VERSION 3.25)
string(REPLACE "," ";" waiting "${ROOTS}")
set(paths)
while(waiting)
  list(POP_FRONT waiting path)
  if(path IN_LIST paths OR path MATCHES "^kernels/simulator/")
    continue()
  endif()
  list(APPEND paths ${path})
  file(STRINGS ${SOURCE_DIR}/${path} includes REGEX "^[ \t]*#[ \t]*include[ \t]*\"")
  list(TRANSFORM includes REPLACE "^[^\"]*\"([^\"]*)\".*$" "\\1")
  list(APPEND waiting ${includes})
endwhile()
list(SORT paths)
list(LENGTH paths count)

set(table)
foreach(path ${paths})
  file(READ ${SOURCE_DIR}/${path} text)
  string(APPEND table "    {\"${path}\", R\"device_header(${text})device_header\"},\n")
endforeach()
set(content "#include \"kernels/embedded_sources.h\"

namespace flashproof {

EmbeddedSources embedded_sources() {
  static constexpr EmbeddedSource sources[] = {
${table}  };
  return {sources, ${count}};
}

}  // namespace flashproof
")
# Left alone when nothing changed, so that nothing is compiled again.
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT "${before}" STREQUAL "${content}")
  file(WRITE ${OUTPUT} "${content}")
endif()
