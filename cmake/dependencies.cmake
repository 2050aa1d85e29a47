# Every library comes from Debian 12 (tools/install.sh names the packages).
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(Boost 1.81 REQUIRED COMPONENTS json)
find_package(GTest REQUIRED)
find_package(rapidcheck REQUIRED)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(CARES REQUIRED IMPORTED_TARGET libcares)

# What every target is built with.
add_library(weighlock_options INTERFACE)
target_compile_options(weighlock_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Werror=return-type
                       -Werror=unused-result -fno-omit-frame-pointer)
target_include_directories(weighlock_options INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(weighlock_options INTERFACE Threads::Threads)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12.2 reports these in its own standard library and in coroutine frames, where nothing is wrong.
  target_compile_options(weighlock_options INTERFACE -Wno-restrict -Wno-maybe-uninitialized -Wno-dangling-pointer
                         -Wno-stringop-overflow)
endif()
if(WEIGHLOCK_SANITIZE)
  target_compile_options(weighlock_options INTERFACE -fsanitize=${WEIGHLOCK_SANITIZE} -fno-sanitize-recover=all)
  target_link_options(weighlock_options INTERFACE -fsanitize=${WEIGHLOCK_SANITIZE})
endif()
