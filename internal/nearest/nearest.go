// SPDX-License-Identifier: Apache-2.0

// Package nearest finds the known word that is most similar to a mistyped word.
package nearest

import "strings"

// longest is the length in bytes above which words are not compared.
const longest = 64

// Of returns the known word that is most similar to the given word, or "" if no known word is similar. A known word
// is similar if it differs in few letters, or if it is the only known word that begins with the given word. The
// comparison ignores letter case and treats - and _ as equal.
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

// Hint returns the text " (did you mean X?)", where X is the result of Of. Hint returns "" if no known word is
// similar to the given word.
func Hint(word string, known ...string) string {
	if k := Of(word, known); k != "" {
		return " (did you mean " + k + "?)"
	}
	return ""
}

func fold(s string) string { return strings.ReplaceAll(strings.ToLower(s), "_", "-") }

// distance returns the number of letters to insert, delete, replace or swap with a neighbour to turn a into b.
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
