// The io_context behind a Loop. Heavy: only .cpp files of runtime/ include it; sockets elsewhere use runtime/watch.hpp.
#pragma once

#include <boost/asio/io_context.hpp>

#include "weighlock/runtime/loop.hpp"

namespace weighlock {

class Poller;

boost::asio::io_context& io_context_of(Loop& loop);
Poller& poller_of(Loop& loop);

}  // namespace weighlock
