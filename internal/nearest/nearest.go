// SPDX-License-Identifier: Apache-2.0

// Package nearest finds the known word that a mistyped word most likely means.
package nearest

import "strings"

// longest bounds the words that are compared: nobody types longer ones.
const longest = 64

// Of returns the known word nearest to word, or "" if none is near. Words are
// near if few letters differ, or if word is the beginning of one known word
// alone. Letter case and the difference between - and _ do not count.
func Of(word string, known []string) string {
	if word == "" || len(word) > longest {
		return ""
	}
	best, fewest, w := "", len(word)/4+2, fold(word)
	begun, begins := "", 0
	for _, k := range known {
		if k == "" || len(k) > longest || k == word {
			continue
		}
		f := fold(k)
		if d := distance(w, f); d < fewest {
			best, fewest = k, d
		}
		if len(w) >= 3 && strings.HasPrefix(f, w) {
			begun, begins = k, begins+1
		}
	}
	if best == "" && begins == 1 {
		return begun
	}
	return best
}

// Hint is " (did you mean X?)" for the nearest known word, or "" if none is near.
func Hint(word string, known ...string) string {
	if k := Of(word, known); k != "" {
		return " (did you mean " + k + "?)"
	}
	return ""
}

func fold(s string) string { return strings.ReplaceAll(strings.ToLower(s), "_", "-") }

// distance counts the letters to insert, delete, replace or swap with their
// neighbour to get from a to b.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := last[j]
			if a[i] != b[j] {
				cost++
			}
			row[j+1] = min(cost, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
