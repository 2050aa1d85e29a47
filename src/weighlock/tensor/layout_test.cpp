#include "weighlock/tensor/layout.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "weighlock/tensor/quote.hpp"
#include "weighlock/tensor/values.hpp"

namespace weighlock {
namespace {

TensorLayout bf16(std::vector<std::uint64_t> shape) {
  const std::uint64_t bytes = *tensor_bytes(Dtype::bf16, shape);
  return {Dtype::bf16, std::move(shape), bytes};
}

Layout model() {
  return {{"model.embed_tokens.weight", bf16({8, 4})}, {"model.norm.weight", bf16({4})}};
}

TEST(Layout, equal_layouts_have_no_differences) {
  EXPECT_TRUE(compare_layouts(model(), model()).empty());
  EXPECT_EQ(total_bytes(model()), 72u);
}

TEST(Layout, missing_unexpected_shape_and_dtype_are_named) {
  Layout actual = model();
  actual["model.norm.weight"].dtype = Dtype::f16;
  actual["model.embed_tokens.weight"] = bf16({9, 4});
  actual["extra"] = bf16({1});
  Layout expected = model();
  expected["gone"] = bf16({2});
  const LayoutDifferences differences = compare_layouts(expected, actual);
  EXPECT_EQ(differences.count, 4u);
  const std::string text = differences.text();
  for (const char* words : {"'gone' is missing", "'extra' (BF16 [1]) is unexpected",
                            "'model.embed_tokens.weight' is BF16 [9,4], expected BF16 [8,4]",
                            "'model.norm.weight' is F16 [4], expected BF16 [4]"}) {
    EXPECT_NE(text.find(words), std::string::npos) << text;
  }
}

TEST(Layout, at_most_eight_differences_are_named_and_all_are_counted) {
  Layout actual;
  for (int i = 0; i < 20; ++i) actual["t" + std::to_string(i)] = bf16({1});
  const LayoutDifferences differences = compare_layouts({}, actual);
  EXPECT_EQ(differences.named.size(), 8u);
  EXPECT_EQ(differences.count, 20u);
  EXPECT_NE(differences.text().find("and 12 more"), std::string::npos);
}

TEST(Layout, tied_head_may_be_absent_on_either_side_and_an_untied_one_may_not) {
  Layout with_head = model();
  with_head["lm_head.weight"] = bf16({8, 4});
  for (const TiedHead tied : {TiedHead::unknown, TiedHead::yes}) {
    EXPECT_TRUE(compare_layouts(model(), with_head, tied).empty());
    EXPECT_TRUE(compare_layouts(with_head, model(), tied).empty());
  }
  EXPECT_EQ(compare_layouts(with_head, model(), TiedHead::no).count, 1u);
  EXPECT_EQ(compare_layouts(model(), with_head, TiedHead::no).count, 1u);
  with_head["lm_head.weight"] = bf16({8, 5});
  EXPECT_EQ(compare_layouts(with_head, model(), TiedHead::unknown).count, 1u);
}

TEST(Values, bytes_become_floats_at_any_alignment) {
  const std::string bytes = std::string("\0", 1) + std::string("\x80\x3f\x00\xc0", 4);
  const std::string_view odd = std::string_view(bytes).substr(1);
  EXPECT_EQ(floats_from(Dtype::bf16, odd), (std::vector<float>{1.0F, -2.0F}));
  EXPECT_EQ(floats_from(Dtype::f32, std::string_view("\0\0\x80\x3f", 4)), (std::vector<float>{1.0F}));
  EXPECT_EQ(floats_from(Dtype::f16, std::string_view("\x00\x3c\x00\xc0\x01\x00\x55\x35", 8)),
            (std::vector<float>{1.0F, -2.0F, 0x1p-24F, 0.333251953125F}));
  EXPECT_TRUE(std::isinf(floats_from(Dtype::f16, std::string_view("\x00\x7c", 2))[0]));
  EXPECT_TRUE(std::isnan(floats_from(Dtype::f16, std::string_view("\x01\x7c", 2))[0]));
  EXPECT_FALSE(has_floats(Dtype::i32));
}

TEST(Quote, names_are_fit_for_a_log_line) {
  EXPECT_EQ(quote_name("a\nb\xff"), "'a\\x0ab\\xff'");
  EXPECT_EQ(quote_name(std::string(200, 'x')), "'" + std::string(128, 'x') + "...'");
}

TEST(Dtype, every_name_is_found_again) {
  for (int i = 0; i < kDtypes; ++i) EXPECT_EQ(dtype_from(name(static_cast<Dtype>(i))), static_cast<Dtype>(i));
}

}  // namespace
}  // namespace weighlock
