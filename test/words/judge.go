// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strings"
)

// Limits of a sentence that is understood at the first reading.
const (
	leastWords  = 4  // shorter pieces are names and labels
	mostWords   = 30 // the goal is 25; code and numbers may take a few more
	mostClauses = 2  // that, which, who, whose, whom, what
)

var (
	sentenceEnd = regexp.MustCompile(`([.!?])(["')\x60*]*)\s+(["'(\x60*]*[A-Za-z0-9])`)
	clause      = regexp.MustCompile(`(?i)\b(that|which|who|whose|whom|what)\b`)
	verdicts    = regexp.MustCompile(
		`(?i)\b(says? of|hears|nobody asked|whose [a-z]+ (is|are)\b|is said|are said|it is told)\b`)
	pointer = regexp.MustCompile(`^(It|Its|They|Their|These|Those|This|That|Both|Neither|He|Such|One)\b`)
	code    = regexp.MustCompile("`[^`]*`")
)

// split cuts text into sentences and keeps those long enough to be read alone.
func split(file string, line int, kind, text string) []sentence {
	var all []sentence
	for _, paragraph := range regexp.MustCompile(`\n\s*\n`).Split(text, -1) {
		paragraph = strings.Join(strings.Fields(paragraph), " ")
		marked := sentenceEnd.ReplaceAllString(paragraph, "$1$2\x00$3")
		// A second pass cuts between sentences of one word, whose ends the first one took as beginnings.
		marked = sentenceEnd.ReplaceAllString(marked, "$1$2\x00$3")
		for _, text := range strings.Split(marked, "\x00") {
			if len(strings.Fields(text)) >= leastWords {
				all = append(all, sentence{file: file, line: line, kind: kind, text: text})
			}
		}
	}
	return all
}

// hardOnly returns the sentences that break a rule, each with that rule.
func hardOnly(all []sentence) []sentence {
	var kept []sentence
	for _, s := range all {
		if s.fault = fault(s.text); s.fault != "" {
			kept = append(kept, s)
		}
	}
	return kept
}

// fault names the rule that a sentence breaks, or returns "".
func fault(text string) string {
	words := len(strings.Fields(code.ReplaceAllString(text, "x")))
	clauses := len(clause.FindAllString(text, -1))
	switch {
	case words > mostWords:
		return fmt.Sprintf("%d words, at most %d", words, mostWords)
	case clauses > mostClauses:
		return fmt.Sprintf("%d relative clauses, at most %d", clauses, mostClauses)
	case pointer.MatchString(text):
		return "points at another sentence: " + pointer.FindString(text)
	case verdicts.MatchString(text):
		return "a word of ours where the field has one: " + verdicts.FindString(text)
	}
	return ""
}
