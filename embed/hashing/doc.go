// Package hashing is an offline embedding provider: no key, no network, no model
// file, and the same vectors on every machine. It is for trying things out, for
// tests, and for search where shared words are what counts.
//
// It is LEXICAL, NOT SEMANTIC. Texts are close if they share words or parts of
// words: "reads JSON files" is close to "read a JSON file", but "car" is no
// closer to "automobile" than to "banana", and nothing is close across languages.
//
// # How vectors come about
//
// It is feature hashing (Weinberger et al., "Feature Hashing for Large Scale
// Multitask Learning", 2009): each feature of a text is hashed to one dimension
// and one sign, and its weight is added there. The features are
//
//   - words: runs of letters and digits, in lower case;
//   - the parts of words in camel case: "ReadFile" is also "read" and "file";
//   - n-grams: the pieces of MinGram to MaxGram characters of a word with a mark
//     before and after it, so that "reader" and "reading" are close; each weighs
//     as a word divided by the square root of how many the word has;
//   - in scripts that don't put spaces between words (Chinese, Japanese, Thai and
//     others), and in Korean: each pair of neighbours and, weighing less, each
//     character, also of emoji and other symbols.
//
// English function words such as "the" weigh 1/32 of other words, and have no
// n-grams. Case is folded in Latin, Greek, Cyrillic and Armenian letters, and
// full-width Latin is the same as ASCII. Nothing else is normalised: "é" as one
// character and as two are different.
//
// The number in each dimension is then the square root of its sum, with its sign,
// which keeps a word that is repeated from drowning the others (the TF weight),
// and the vector is divided by its length. A text without letters, digits and
// symbols ("!!!") has its punctuation for features; no text has a zero vector.
//
// All sums are of integers, and the tables of characters are the package's own,
// so that neither the machine nor the version of Go changes a vector.
// docs/design.md has what was tried, and how it ranked.
package hashing
