#include <fmt/format.h>
#include <gtest/gtest.h>
#include <openssl/sha.h>
#include <xxhash.h>

#include "weighlock/core/limits.hpp"
#include "weighlock/store/checkpoint_fixture.hpp"
#include "weighlock/store/hash.hpp"

namespace weighlock {
namespace {

namespace fs = std::filesystem;

using DigestTest = StoreTest;

// The definition in README.md, written out once more.
std::string run_digest(std::string_view bytes) {
  std::string text;
  for (int i = 0; i < 8; ++i) text += static_cast<char>(bytes.size() >> (8 * i) & 0xff);
  for (std::size_t at = 0; at < bytes.size(); at += kChunkBytes) text += digest_bytes(bytes.substr(at, kChunkBytes));
  return digest_bytes(text);
}

std::string tensor_bytes_of(const Inspection& inspection, const std::string& directory, const std::string& name) {
  const Inspection::Place place = inspection.find_tensor(name);
  const std::string file = read_file(directory + "/" + place.file->name);
  return file.substr(place.file->data_offset + place.tensor->begin, place.tensor->end - place.tensor->begin);
}

TEST(RunHash, digest_does_not_depend_on_how_the_bytes_come) {
  std::string bytes(kChunkBytes + 12345, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 2654435761U >> 13);
  for (const std::size_t step : {std::size_t{1} << 16, std::size_t{777777}, bytes.size()}) {
    RunHash hash;
    for (std::size_t at = 0; at < bytes.size(); at += step) hash.update(std::string_view(bytes).substr(at, step));
    EXPECT_EQ(hash.finish(), run_digest(bytes)) << step;
    EXPECT_EQ(hash.finish(), run_digest("")) << "as new after finish";
  }
  // XXH3-128 of nothing, from the algorithm's specification.
  EXPECT_EQ(hex(digest_bytes("")), "99aa06d3014798d86001c324468d497f");
}

TEST_F(DigestTest, digests_are_those_of_the_definition) {
  // A tensor over a chunk's end, one that crosses the reader's buffer, empty ones at the ends.
  write_single(version, {{"big", Dtype::f32, {2'200'000}},
                         {"edge", Dtype::bf16, {4'194'304}},
                         {"tail", Dtype::u8, {3}},
                         {"none", Dtype::u8, {0}},
                         {"nothing", Dtype::f64, {0}}});
  const Inspection inspection = *inspect(version);
  std::uint64_t told = 0;
  const auto digest = store.digest(version, inspection,
                                   {[&](std::uint64_t done, std::uint64_t total) {
                                      EXPECT_GT(done, told);
                                      EXPECT_LE(done, total);
                                      told = done;
                                    },
                                    nullptr});
  ASSERT_TRUE(digest) << digest.error().text();
  EXPECT_EQ(told, inspection.file_bytes);
  EXPECT_EQ(digest->bytes, inspection.file_bytes);
  std::string lines;
  std::string file_text = digest_bytes(
      read_file(version + "/model.safetensors").substr(0, inspection.find_file("model.safetensors")->data_offset));
  for (const auto& [name, layout] : inspection.layout) {
    const std::string hash = hex(run_digest(tensor_bytes_of(inspection, version, name)));
    EXPECT_EQ(digest->tensors.at(name), hash) << name;
    lines +=
        name + '\0' + std::string(weighlock::name(layout.dtype)) + '\0' + shape_text(layout.shape) + '\0' + hash + '\n';
  }
  for (const TensorEntry& tensor : inspection.find_file("model.safetensors")->tensors) {
    file_text += run_digest(tensor_bytes_of(inspection, version, tensor.name));
  }
  EXPECT_EQ(digest->version, hex(digest_bytes(lines)));
  EXPECT_EQ(digest->files.at("model.safetensors"), hex(digest_bytes(file_text)));
  EXPECT_EQ(digest->files.at("config.json"), hex(run_digest(read_file(version + "/config.json"))));
}

TEST_F(DigestTest, version_digest_stays_when_the_same_tensors_are_cut_into_other_files) {
  const std::string single = root.path("single");
  write_single(single, {{"a", Dtype::bf16, {4}}, {"b", Dtype::f32, {2, 2}}, {"c", Dtype::bf16, {8}}});
  write_sharded(version);
  const Digest one = *store.digest(single, *inspect(single));
  const Digest two = *store.digest(version, *inspect(version));
  EXPECT_EQ(one.version, two.version);
  EXPECT_NE(one.files, two.files);
  write_single(single, {{"a", Dtype::bf16, {4}}, {"b", Dtype::f32, {4}}, {"c", Dtype::bf16, {8}}});
  EXPECT_NE(store.digest(single, *inspect(single))->version, two.version) << "another shape of the same bytes";
}

TEST_F(DigestTest, one_changed_bit_changes_the_tensor_and_the_version_only) {
  write_single(version);
  const Inspection inspection = *inspect(version);
  const Digest before = *store.digest(version, inspection);
  std::string bytes = read_file(version + "/model.safetensors");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file(version + "/model.safetensors", bytes);
  const Digest after = *store.digest(version, inspection);
  EXPECT_NE(before.version, after.version);
  const std::string last = inspection.find_file("model.safetensors")->tensors.back().name;
  for (const auto& [name, hash] : before.tensors) EXPECT_EQ(hash == after.tensors.at(name), name != last) << name;
}

TEST_F(DigestTest, file_cut_while_it_is_read_is_an_error_that_names_it) {
  write_single(version, {{"big", Dtype::u8, {20'000'000}}});
  const Inspection inspection = *inspect(version);
  const std::string file = version + "/model.safetensors";
  const auto cut = [&](std::uint64_t done, std::uint64_t) {
    if (done > 1'000'000) fs::resize_file(file, 9'000'000);
  };
  const auto digest = store.digest(version, inspection, {cut, nullptr});
  ASSERT_FALSE(digest);
  EXPECT_NE(digest.error().text().find(file + "' is cut short"), std::string::npos) << digest.error().text();
}

TEST_F(DigestTest, file_that_grows_or_changes_its_header_is_an_error) {
  write_single(version);
  const Inspection inspection = *inspect(version);
  const std::string file = version + "/model.safetensors";
  const std::string bytes = read_file(file);
  const auto grow = [&](std::uint64_t done, std::uint64_t) {
    if (done > 100) write_file(file, bytes + "x");
  };
  EXPECT_NE(store.digest(version, inspection, {grow, nullptr}).error().text().find("changed while it was read"),
            std::string::npos);
  std::string renamed = bytes;
  renamed[renamed.find("model.norm")] = 'M';
  write_file(file, renamed);
  EXPECT_NE(store.digest(version, inspection).error().text().find("header changed"), std::string::npos);
  write_file(file, bytes.substr(1));
  EXPECT_NE(store.digest(version, inspection).error().text().find("expected " + std::to_string(bytes.size())),
            std::string::npos);
}

TEST_F(DigestTest, digest_can_be_cancelled) {
  write_single(version, {{"big", Dtype::u8, {20'000'000}}});
  std::atomic<bool> cancel = false;
  std::uint64_t read = 0;
  const auto stop = [&](std::uint64_t done, std::uint64_t) {
    read = done;
    cancel = done > 1'000'000;
  };
  EXPECT_EQ(store.digest(version, *inspect(version), {stop, &cancel}).error().code, ErrorCode::cancelled);
  EXPECT_LT(read, 10'000'000u);
}

TEST_F(DigestTest, short_reads_change_nothing) {
  write_single(version);
  const Inspection inspection = *inspect(version);
  const Digest whole = *store.digest(version, inspection);
  files.read_bytes_max = 13;
  EXPECT_EQ(store.digest(version, inspection)->version, whole.version);
}

TEST_F(DigestTest, manifest_takes_the_digests_and_keeps_them) {
  write_sharded(version);
  const Manifest sealed = seal(version);
  Digest digest = *store.digest(version, *inspect(version));
  ASSERT_TRUE(store.complete_manifest(sealed, digest));
  const Manifest loaded = *store.load_manifest(version);
  EXPECT_EQ(loaded.digest, digest.version);
  EXPECT_EQ(loaded.tensors.at("c").digest, digest.tensors.at("c"));
  for (const ManifestFile& file : loaded.files) EXPECT_EQ(file.digest, digest.files.at(file.name));
  EXPECT_TRUE(store.verify_sealed(version));
  EXPECT_TRUE(compare_digest(loaded, digest));
  const std::string text = read_file(version + "/" + std::string(kManifestName));
  digest.tensors["c"] = "other";
  const Error error = store.complete_manifest(loaded, digest).error();
  EXPECT_EQ(error.code, ErrorCode::conflict);
  EXPECT_NE(error.text().find("1 tensors and files differ: 'c'"), std::string::npos) << error.text();
  digest.tensors["c"] = loaded.tensors.at("c").digest;
  digest.version = "other";
  EXPECT_FALSE(compare_digest(loaded, digest));
  EXPECT_EQ(read_file(version + "/" + std::string(kManifestName)), text);
}

TEST_F(DigestTest, tied_head_with_other_bytes_is_reported) {
  write_single(version);
  EXPECT_TRUE(store.digest(version, *inspect(version))->warnings.empty());
  write_file(version + "/config.json", R"({"text_config":{"tie_word_embeddings":true}})");
  EXPECT_EQ(store.digest(version, *inspect(version))->warnings.size(), 1u);
}

TEST_F(DigestTest, scale_of_an_adapter_is_part_of_its_digest) {
  InspectOptions options;
  options.is_lora = true;
  write_file(version + "/adapter_model.safetensors",
             weights_file({{"m.lora_A.weight", Dtype::bf16, {2, 4}}, {"m.lora_B.weight", Dtype::bf16, {4, 2}}}));
  write_file(version + "/adapter_config.json", R"({"r":2,"lora_alpha":4})");
  const std::string before = store.digest(version, *inspect(version, options))->version;
  write_file(version + "/adapter_config.json", R"({"r":2,"lora_alpha":8})");
  EXPECT_NE(store.digest(version, *inspect(version, options))->version, before);
}

// Expectations.
class ExpectationsTest : public StoreTest {
 protected:
  Expectations expectations(const PreviousVersion* previous = nullptr) {
    return store.expectations(version, *inspect(version), previous, &notes).value();
  }
  static const TensorExpectation* find_expected(const Expectations& from, std::string_view name) {
    for (const TensorExpectation& tensor : from.tensors) {
      if (tensor.name == name) return &tensor;
    }
    return nullptr;
  }
  std::vector<std::string> notes;
};

TEST_F(ExpectationsTest, small_unfused_tensors_come_first_with_their_values) {
  write_single(version);
  const Expectations expected = expectations();
  ASSERT_EQ(expected.tensors.size(), 5u);
  std::vector<std::string> order;
  for (const TensorExpectation& tensor : expected.tensors) order.push_back(tensor.name);
  EXPECT_EQ(order, (std::vector<std::string>{"model.norm.weight", "model.layers.0.input_layernorm.weight",
                                             "model.embed_tokens.weight", "lm_head.weight",
                                             "model.layers.0.self_attn.q_proj.weight"}));
  EXPECT_EQ(expected.tensors[0].leading.size(), 8u);
  EXPECT_EQ(expected.tensors[2].leading.size(), 100u);
  EXPECT_EQ(expected.tensors[2].dtype, "BF16");
  EXPECT_EQ(expected.tensors[2].shape, (std::vector<std::uint64_t>{16, 8}));
  const std::string bytes = tensor_bytes_of(*inspect(version), version, "model.norm.weight");
  const auto low = static_cast<unsigned char>(bytes[0]);
  EXPECT_FLOAT_EQ(expected.tensors[0].leading[0],
                  (low & 0x80 ? 1.0F : 0.5F) * (1.0F + static_cast<float>(low & 0x7f) / 128.0F));
}

TEST_F(ExpectationsTest, spot_values_are_limited_in_number_and_length) {
  std::vector<TensorSpec> tensors = tiny_tensors();
  for (int i = 0; i < 20; ++i) tensors.push_back({fmt::format("model.layers.{}.extra.weight", i), Dtype::bf16, {200}});
  write_single(version, tensors);
  std::size_t with_values = 0;
  for (const TensorExpectation& tensor : expectations().tensors) {
    with_values += tensor.leading.empty() ? 0 : 1;
    EXPECT_LE(tensor.leading.size(), limits::kSpotValuesMax);
  }
  EXPECT_EQ(with_values, limits::kSpotTensorsMax);
}

TEST_F(ExpectationsTest, hashes_are_sha256_of_the_raw_bytes_of_norms_embedding_and_head) {
  write_single(version);
  const Expectations expected = expectations();
  for (const TensorExpectation& tensor : expected.tensors) {
    const std::string bytes = tensor_bytes_of(*inspect(version), version, tensor.name);
    std::string hash(SHA256_DIGEST_LENGTH, '\0');
    SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
           reinterpret_cast<unsigned char*>(hash.data()));
    EXPECT_EQ(tensor.sha256, tensor.name.ends_with("q_proj.weight") ? "" : hex(hash)) << tensor.name;
  }
  EXPECT_TRUE(notes.empty());
}

TEST_F(ExpectationsTest, tensors_that_differ_from_the_previous_version_are_preferred) {
  std::vector<TensorSpec> tensors = tiny_tensors();
  for (int layer = 1; layer < 12; ++layer)
    tensors.push_back({"model.layers." + std::to_string(layer) + ".input_layernorm.weight", Dtype::bf16, {8}});
  const std::string before = root.path("before");
  write_single(before, tensors);
  write_single(version, tensors);
  PreviousVersion previous{before, *inspect(before)};
  for (const TensorExpectation& tensor : expectations(&previous).tensors)
    EXPECT_FALSE(tensor.differs_from_previous) << tensor.name;
  // Only the projection changes, which would come last.
  const Inspection::Place place = previous.inspection.find_tensor("model.layers.0.self_attn.q_proj.weight");
  std::string bytes = read_file(before + "/model.safetensors");
  bytes[place.file->data_offset + place.tensor->begin] ^= 1;
  write_file(before + "/model.safetensors", bytes);
  const Expectations expected = expectations(&previous);
  EXPECT_EQ(expected.tensors[0].name, place.tensor->name);
  EXPECT_TRUE(expected.tensors[0].differs_from_previous);
  std::size_t with_values = 0;
  for (const TensorExpectation& tensor : expected.tensors) with_values += tensor.leading.empty() ? 0 : 1;
  EXPECT_EQ(with_values, 8u);
  ASSERT_NE(find_expected(expected, "model.layers.9.input_layernorm.weight"), nullptr) << "for its hash";
}

TEST_F(ExpectationsTest, previous_version_that_is_gone_is_said_and_not_fatal) {
  write_single(version);
  PreviousVersion previous{root.path("gone"), *inspect(version)};
  EXPECT_TRUE(expectations(&previous).tensors[0].differs_from_previous);
  ASSERT_EQ(notes.size(), 1u);
}

TEST_F(ExpectationsTest, tensors_too_large_to_hash_are_named) {
  write_file(version + "/config.json", "{}");
  // A sparse file: the header says 600 MiB, and nothing of it is read but the first values.
  const WrittenHeader header = *write_safetensors_header(
      {{"lm_head.weight", Dtype::bf16, {300, 1 << 20}}, {"model.norm.weight", Dtype::bf16, {4}}});
  write_file(version + "/model.safetensors", header.bytes);
  fs::resize_file(version + "/model.safetensors", header.bytes.size() + header.data_bytes);
  const Expectations expected = expectations();
  EXPECT_EQ(find_expected(expected, "lm_head.weight")->sha256, "");
  EXPECT_NE(find_expected(expected, "model.norm.weight")->sha256, "");
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("'lm_head.weight' has 629145600 bytes"), std::string::npos) << notes[0];
}

}  // namespace
}  // namespace weighlock
