#include "tinyengine/testing/rig.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <filesystem>

#include "tinyengine/model/checkpoint.hpp"
#include "tinyengine/model/seeded.hpp"

namespace weighlock::tiny {
namespace {

using Clock = std::chrono::steady_clock;

int milliseconds_left(Clock::time_point deadline) {
  return std::max<int>(0, static_cast<int>(std::chrono::duration_cast<Milliseconds>(deadline - Clock::now()).count()));
}

// The length that the header announces, or none for "until the end of the connection".
std::optional<std::size_t> announced(const std::string& headers) {
  const std::size_t at = headers.find("Content-Length: ");
  if (at == std::string::npos) return std::nullopt;
  return std::stoul(headers.substr(at + 16));
}

std::string dechunked(const std::string& body) {
  std::string result;
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t line = body.find("\r\n", at);
    if (line == std::string::npos) break;
    const std::size_t size = std::stoul(body.substr(at, line - at), nullptr, 16);
    if (size == 0) break;
    result += body.substr(line + 2, size);
    at = line + 2 + size + 2;
  }
  return result;
}

void finish(Answer& answer, const std::string& received) {
  const std::size_t split = received.find("\r\n\r\n");
  if (split == std::string::npos) {
    answer.ending = Answer::Ending::reset;
    return;
  }
  answer.headers = received.substr(0, split + 2);
  answer.body = received.substr(split + 4);
  answer.status = std::stoi(received.substr(9, 3));
  if (answer.headers.find("chunked") != std::string::npos) answer.body = dechunked(answer.body);
  if (auto parsed = parse_json(answer.body, "answer")) answer.json = *std::move(parsed);
}

bool is_whole(const std::string& received) {
  const std::size_t split = received.find("\r\n\r\n");
  if (split == std::string::npos) return false;
  const auto length = announced(received.substr(0, split + 2));
  return length && received.size() >= split + 4 + *length;
}

}  // namespace

std::string Answer::text(std::string_view pointer) const {
  boost::json::error_code failed;
  const json::value* found = json.find_pointer({pointer.data(), pointer.size()}, failed);
  if (!found) return "";
  return found->is_string() ? std::string(found->as_string().c_str()) : json::serialize(*found);
}

Answer call(int port, const std::string& method, const std::string& target, const std::string& body,
            const CallOptions& options) {
  Answer answer;
  const Clock::time_point deadline = Clock::now() + Milliseconds{options.timeout_ms};
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) {
    answer.ending = Answer::Ending::refused;
    ::close(socket);
    return answer;
  }
  std::string request = fmt::format("{} {} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: {}\r\n",
                                    method, target, body.size());
  if (!body.empty()) request += fmt::format("Content-Type: {}\r\n", options.content_type);
  if (!options.bearer.empty()) request += fmt::format("Authorization: {}\r\n", options.bearer);
  request += "\r\n" + body;
  std::string received;
  bool broken = ::send(socket, request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size());
  while (!broken && !is_whole(received)) {
    pollfd ready{socket, POLLIN, 0};
    if (::poll(&ready, 1, milliseconds_left(deadline)) <= 0) {
      answer.ending = Answer::Ending::timeout;
      break;
    }
    char buffer[16384];
    const ssize_t count = ::recv(socket, buffer, sizeof buffer, 0);
    if (count == 0) break;
    if (count < 0) {
      broken = true;
    } else {
      received.append(buffer, static_cast<std::size_t>(count));
    }
  }
  ::close(socket);
  if (broken) answer.ending = Answer::Ending::reset;
  if (answer.ending == Answer::Ending::answered) finish(answer, received);
  return answer;
}

std::future<Answer> call_later(int port, const std::string& method, const std::string& target, const std::string& body,
                               const CallOptions& options) {
  return std::async(std::launch::async, [=] { return call(port, method, target, body, options); });
}

bool comes_true(const std::function<bool()>& condition) {
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds{5};
  while (!condition()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(Milliseconds{1});
  }
  return true;
}

Rig::Rig()
    : pool_(loop_, 2), thread_([this] {
        loop_.after(std::chrono::hours{1}, [] {});  // so that the loop has something to wait for
        loop_.run();
      }) {}

Rig::~Rig() {
  on_loop([this] { engines_.clear(); });
  loop_.stop();
  thread_.join();
}

void Rig::on_loop(const std::function<void()>& work) {
  std::promise<void> done;
  loop_.post([&] {
    work();
    done.set_value();
  });
  done.get_future().wait();
}

int Rig::start(EngineSettings settings) {
  int port = 0;
  on_loop([&] {
    engines_.push_back(std::make_unique<Engine>(loop_, pool_, std::move(settings)));
    const Status started = engines_.back()->start();
    EXPECT_TRUE(started) << started.error().text();
    port = engines_.back()->port();
  });
  return port;
}

Engine& Rig::engine(int port) {
  for (const auto& engine : engines_) {
    if (engine->port() == port) return *engine;
  }
  ADD_FAILURE() << "no engine on port " << port;
  return *engines_.front();
}

EngineTimings quick_timings() {
  EngineTimings timings = EngineTimings{}.scaled(0.02);
  timings.vllm_death = Milliseconds{50};
  return timings;
}

TestModels::TestModels() {
  const ModelShape shape;
  for (const std::uint64_t seed : {1, 2, 3}) {
    EXPECT_TRUE(write_checkpoint((*this)(fmt::format("v{}", seed)), shape, seeded_model(shape, seed)));
  }
  EXPECT_TRUE(write_checkpoint((*this)("v2s"), shape, seeded_model(shape, 2), 2));
  std::filesystem::create_directory((*this)("nothing"));
  changed("empty", [](auto& tensors) { tensors.clear(); });
  changed("half", [](auto& tensors) { tensors.resize(tensors.size() / 2); });
  changed("shape", [](auto& tensors) {
    for (Tensor& tensor : tensors) {
      if (tensor.name != "model.layers.1.mlp.up_proj.weight") continue;
      tensor.shape[0] /= 2;
      tensor.bytes.resize(tensor.bytes.size() / 2);
    }
  });
  changed("extra", [](auto& tensors) {
    tensors.push_back({"model.layers.0.mlp.surprise.weight", "BF16", {4, 4}, std::string(32, '\0')});
  });
  changed("nan", [](auto& tensors) {
    for (Tensor& tensor : tensors) {
      if (tensor.name == "model.norm.weight") tensor.bytes.replace(0, 2, "\xc0\x7f");
    }
  });
  const std::string stray = changed("stray", [](auto&) {});
  EXPECT_TRUE(write_text(stray + "/old.safetensors", safetensors_bytes(seeded_model(shape, 3))));
  const std::string cut = changed("truncated", [](auto&) {}) + "/model.safetensors";
  std::filesystem::resize_file(cut, std::filesystem::file_size(cut) * 6 / 10);
  EXPECT_TRUE(write_checkpoint((*this)("lost"), shape, seeded_model(shape, 2), 2));
  std::filesystem::remove((*this)("lost/model-00002-of-00002.safetensors"));
  write_adapters();
}

void TestModels::write_adapters() {
  const ModelShape shape;
  const AdapterConfig good;
  for (const std::uint64_t seed : {1, 2, 3})
    EXPECT_TRUE(write_adapter((*this)(fmt::format("lora{}", seed)), good, seeded_adapter(shape, good, seed)));
  AdapterConfig config;
  config.rank = 64;
  EXPECT_TRUE(write_adapter((*this)("lora64"), config, seeded_adapter(shape, config, 1)));
  config = good;
  config.rank = 8;
  EXPECT_TRUE(write_adapter((*this)("lora_rank"), good, seeded_adapter(shape, config, 1)));
  config = good;
  config.dora = true;
  EXPECT_TRUE(write_adapter((*this)("lora_dora"), config, seeded_adapter(shape, good, 1)));
  config = good;
  config.modules_to_save = {"lm_head"};
  EXPECT_TRUE(write_adapter((*this)("lora_saved"), config, seeded_adapter(shape, good, 1)));
  std::vector<Tensor> renamed = seeded_adapter(shape, good, 1);
  for (Tensor& tensor : renamed) tensor.name = "base_model.model.model.language_" + tensor.name.substr(17);
  EXPECT_TRUE(write_adapter((*this)("lora_prefix"), good, renamed));
  for (const char* name : {"lora_cut", "lora_noweights"})
    EXPECT_TRUE(write_adapter((*this)(name), good, seeded_adapter(shape, good, 1)));
  const std::string cut = (*this)("lora_cut/adapter_model.safetensors");
  std::filesystem::resize_file(cut, std::filesystem::file_size(cut) * 6 / 10);
  std::filesystem::remove((*this)("lora_noweights/adapter_model.safetensors"));
}

std::string TestModels::changed(const std::string& name,
                                const std::function<void(std::vector<Tensor>&)>& change) const {
  const ModelShape shape;
  std::vector<Tensor> tensors = seeded_model(shape, 2);
  change(tensors);
  EXPECT_TRUE(write_checkpoint((*this)(name), shape, std::move(tensors)));
  return (*this)(name);
}

TestModels& test_models() {
  static TestModels models;
  return models;
}

}  // namespace weighlock::tiny
