# Run by the build (cmake -P): writes OUTPUT, the C++ source of FUNCTION in kernels/embedded_sources.h, from ROOTS (files
# by their path in SOURCE_DIR) and all that they include by quotes, but the simulator, which only the host compiler sees.
# A file that is in COPIES, too, is taken from there.
cmake_minimum_required(VERSION 3.25)

function(find_source path source)
  set(${source} ${SOURCE_DIR}/${path} PARENT_SCOPE)
  if(DEFINED COPIES AND EXISTS ${COPIES}/${path})
    set(${source} ${COPIES}/${path} PARENT_SCOPE)
  endif()
endfunction()

string(REPLACE "," ";" waiting "${ROOTS}")
set(paths)
while(waiting)
  list(POP_FRONT waiting path)
  if(path IN_LIST paths OR path MATCHES "^kernels/simulator/")
    continue()
  endif()
  list(APPEND paths ${path})
  find_source(${path} source)
  file(STRINGS ${source} includes REGEX "^[ \t]*#[ \t]*include[ \t]*\"")
  list(TRANSFORM includes REPLACE "^[^\"]*\"([^\"]*)\".*$" "\\1")
  list(APPEND waiting ${includes})
endwhile()
list(SORT paths)
list(LENGTH paths count)

set(table)
foreach(path ${paths})
  find_source(${path} source)
  file(READ ${source} text)
  string(APPEND table "    {\"${path}\", R\"source_text(${text})source_text\"},\n")
endforeach()
set(content "#include \"kernels/embedded_sources.h\"

namespace flashproof {

EmbeddedSources ${FUNCTION}() {
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
