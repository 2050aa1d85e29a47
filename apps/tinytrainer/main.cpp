// tinytrainer: the ranks of a small trainer in one process; or a writer of small model directories.
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "tinyengine/model/checkpoint.hpp"
#include "tinytrainer/trainer.hpp"

namespace weighlock::tiny {
namespace {

constexpr std::string_view kUsage =
    R"(tinytrainer --ranks N [options]            serves; prints "listening rank 0 http://127.0.0.1:PORT" for each rank
tinytrainer --write DIR --seed S [--shards N] [model options]      writes a model directory and ends

  --ranks N                   2
  --model-seed S, --seed S    of the start model (1)
  --init DIR                  writes the start model there before serving
  --step-scale X              multiplies what a step changes (1.0)
  --step-on-save 0|1          train a step before each save (1); else only POST /step does
  --lora-rank N               saves are LoRA adapters of q_proj and v_proj of this rank, not models (0)
  --pairing path|call         which calls make one collective: those with one path, or each rank's oldest as AReaL's (path)
  --collective-timeout-ms N   a rank whose peers don't come answers 500 after so long (0 = never)
  --host ADDRESS              127.0.0.1
  --port N                    of rank 0, rank r has N + r (0 = any free ones)
  --ports-file FILE           one URL a line
  model: --hidden --inter --layers --heads --kv-heads --head-dim --max-pos (numbers), --dtype BF16|F16|F32, --tied 0|1
)";

struct Options {
  TrainerSettings trainer;
  std::string init, write, ports_file;
  std::size_t shards = 1;
  bool help = false;
};

Error usage(std::string message) {
  return {ErrorCode::invalid_argument, std::move(message) + "; see tinytrainer --help"};
}

template <typename Number>
Status set_number(std::string_view flag, std::string_view text, Number& target) {
  Number value{};
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc{} || end != text.data() + text.size() || value < 0) {
    return usage(fmt::format("{}: '{}' is not a number from 0 on", flag, text));
  }
  target = value;
  return {};
}

Status apply_words(Options& options, std::string_view flag, std::string_view value) {
  TrainerSettings& trainer = options.trainer;
  if (flag == "--init") {
    options.init = value;
  } else if (flag == "--write") {
    options.write = value;
  } else if (flag == "--ports-file") {
    options.ports_file = value;
  } else if (flag == "--host") {
    trainer.host = value;
  } else if (flag == "--tied") {
    trainer.shape.tied = value == "1";
  } else if (flag == "--step-on-save") {
    trainer.step_on_save = value != "0";
  } else if (flag == "--dtype" && (value == "BF16" || value == "F16" || value == "F32")) {
    trainer.shape.dtype = value;
  } else if (flag == "--pairing" && (value == "path" || value == "call")) {
    trainer.pairing = value == "call" ? TrainerSettings::Pairing::call : TrainerSettings::Pairing::path;
  } else {
    return usage(fmt::format("unknown flag or value '{} {}'", flag, value));
  }
  return {};
}

Status apply(Options& options, std::string_view flag, std::string_view value) {
  TrainerSettings& trainer = options.trainer;
  ModelShape& shape = trainer.shape;
  struct Row {
    std::string_view flag;
    std::size_t* target;
  };
  const Row rows[] = {
      {"--ranks", &trainer.ranks},      {"--shards", &options.shards},   {"--hidden", &shape.hidden},
      {"--inter", &shape.intermediate}, {"--layers", &shape.layers},     {"--heads", &shape.heads},
      {"--kv-heads", &shape.kv_heads},  {"--head-dim", &shape.head_dim}, {"--max-pos", &shape.positions_max}};
  for (const Row& row : rows) {
    if (row.flag != flag) continue;
    if (Status set = set_number(flag, value, *row.target); !set) return set;
    return *row.target > 0 ? Status{} : Status{usage(fmt::format("{} must be at least 1", flag))};
  }
  if (flag == "--lora-rank") {
    AdapterConfig config;
    if (Status set = set_number(flag, value, config.rank); !set) return set;
    config.alpha = 2.0 * static_cast<double>(config.rank);
    trainer.adapter = config.rank > 0 ? std::optional(config) : std::nullopt;
    return {};
  }
  if (flag == "--model-seed" || flag == "--seed") return set_number(flag, value, trainer.seed);
  if (flag == "--step-scale") return set_number(flag, value, trainer.step_scale);
  if (flag == "--port") return set_number(flag, value, trainer.port);
  if (flag == "--collective-timeout-ms") {
    std::int64_t milliseconds = 0;
    if (Status set = set_number(flag, value, milliseconds); !set) return set;
    trainer.collective_timeout = Milliseconds{milliseconds};
    return {};
  }
  return apply_words(options, flag, value);
}

Result<Options> parse(const std::vector<std::string_view>& arguments) {
  Options options;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string_view flag = arguments[i], value;
    if (flag == "--help") {
      options.help = true;
      return options;
    }
    const std::size_t equals = flag.find('=');
    if (equals != std::string_view::npos) {
      value = flag.substr(equals + 1);
      flag = flag.substr(0, equals);
    } else if (++i < arguments.size()) {
      value = arguments[i];
    } else {
      return usage(fmt::format("{} needs a value", flag));
    }
    if (Status applied = apply(options, flag, value); !applied) return applied.error();
  }
  return options;
}

int fail(const Error& error) {
  fmt::print(stderr, "tinytrainer: {}\n", error.text());
  return 1;
}

int run(const Options& options) {
  const TrainerSettings& settings = options.trainer;
  for (const std::string& directory : {options.write, options.init}) {
    if (directory.empty()) continue;
    const std::size_t shards = directory == options.write ? options.shards : 1;
    if (Status wrote = write_checkpoint(directory, settings.shape, seeded_model(settings.shape, settings.seed), shards);
        !wrote) {
      return fail(wrote.error());
    }
  }
  if (!options.write.empty()) return 0;
  Loop loop;
  Pool pool(loop, 2);
  Trainer trainer(loop, pool, settings);
  if (Status started = trainer.start(); !started) return fail(started.error());
  std::string lines;
  for (std::size_t rank = 0; rank < trainer.size(); ++rank) {
    fmt::print("listening rank {} {}\n", rank, trainer.url(rank));
    lines += trainer.url(rank) + "\n";
  }
  if (!options.ports_file.empty()) std::ofstream(options.ports_file) << lines;
  std::fflush(stdout);
  loop.on_signal([&](int) { loop.stop(); });
  loop.run();
  return 0;
}

}  // namespace
}  // namespace weighlock::tiny

int main(int argc, char** argv) {
  const auto options = weighlock::tiny::parse({argv + 1, argv + argc});
  if (!options) {
    fmt::print(stderr, "tinytrainer: {}\n", options.error().text());
    return 2;
  }
  if (options->help) {
    fmt::print("{}", weighlock::tiny::kUsage);
    return 0;
  }
  return weighlock::tiny::run(*options);
}
