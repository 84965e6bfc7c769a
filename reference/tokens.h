// Elements of q, k, v or dO as a recipe makes them, by their place in the packed tensor [tokens, heads, channels].
//
// Element n is channel n mod C of head (n div C) mod H of token n div (C H); reductions keep some of the source's
// tokens, heads and channels, and the recipe speaks of the source. Freestanding: device code includes this file.
#pragma once
#include "reference/recipe.h"

namespace flashproof {

/// A token at the source: its entry of the batch and its position; `context` is the entry's place among the contexts.
struct TokenPlace {
  int64 context, b, position;
};

/// What all elements share; the arrays belong to another.
struct TokenRecipe {
  Recipe recipe;
  Operand operand = Operand::q;
  int64 head_count = 0, channel_count = 0;
  const ElementContext* contexts = nullptr;           ///< one an entry
  const TokenPlace* tokens = nullptr;                 ///< [tokens]
  const int64 *heads = nullptr, *channels = nullptr;  ///< [H], [C]: of the source
};

FLASHPROOF_HD inline Place place_of(const TokenRecipe& t, int64 n) {
  const TokenPlace& token = t.tokens[n / (t.channel_count * t.head_count)];
  return {token.b, token.position, t.heads[n / t.channel_count % t.head_count], t.channels[n % t.channel_count]};
}

/// Encoded bits of element n.
FLASHPROOF_HD inline uint32 token_element(const TokenRecipe& t, int64 n) {
  const Place at = place_of(t, n);
  const ElementContext& context = t.contexts[t.tokens[n / (t.channel_count * t.head_count)].context];
  return element(t.recipe, t.operand, context, at.b, at.position, at.head, at.channel);
}

}  // namespace flashproof
