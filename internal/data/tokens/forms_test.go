// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"
)

// TestFormsAreTheReference compares the normal forms of all characters below U+30000, each with two marks after it,
// with those of the Python package tokenizers 0.23.3. A newer x/text with a newer Unicode version can break the test.
// The sums are made by:
//
//	n = getattr(tokenizers.normalizers, "NFC")()
//	for c in range(0x30000):
//	    if not 0xD800 <= c < 0xE000:
//	        h.update(n.normalize_str(chr(c) + "\u0316\u0334").encode() + b"\n")
func TestFormsAreTheReference(t *testing.T) {
	for form, want := range map[norm.Form]string{
		norm.NFC:  "f32cdac6c610ef05665d4ef1b9f756771b9b04c10928b433d8601d9f7c14c0a9",
		norm.NFD:  "7b2102196144fe5d21ed6f436820453f1326dac16f65b283c91c15b95da62b7b",
		norm.NFKC: "98162a2009af59dd2ad88c4f3f1841f7fa091e6b29e497eced4c2279d9a0042e",
		norm.NFKD: "9bb336e1bf6ac2797b5d1ca68c0b79e6d59b456822d368a341a23ae344d8b557",
	} {
		sum, normalize := sha256.New(), formNormalizer(form)
		for r := rune(0); r < 0x30000; r++ {
			if r >= 0xD800 && r < 0xE000 {
				continue
			}
			out, _, err := normalize([]byte(string(r)+"\u0316\u0334"), true)
			if err != nil {
				t.Fatal(err)
			}
			sum.Write(append(out, '\n'))
		}
		if got := hex.EncodeToString(sum.Sum(nil)); got != want {
			t.Errorf("form %d: %s, expected %s", form, got, want)
		}
	}
}

// TestLongRunsOfMarks compares the normal form of many marks with that of few, which x/text computes.
func TestLongRunsOfMarks(t *testing.T) {
	for _, form := range []norm.Form{norm.NFC, norm.NFD, norm.NFKC, norm.NFKD} {
		for _, text := range []string{"a\u0302\u0323", "q\u0307\u0323\u0334", "\u1ea7\u0323", "\uac00\u11a8",
			"\u1100\u1161\u11a8\u0301",
			"\ufb01\u0301", "\u0344", "\u0301x", "\u0f73\u0f72"} {
			if got := string(plainForm(form, []byte(text), nil)); got != form.String(text) {
				t.Errorf("form %d of %+q: %+q, expected %+q", form, text, got, form.String(text))
			}
		}
	}
	out, _, err := formNormalizer(norm.NFC)([]byte("a"+strings.Repeat("\u0351", 40)+"\u0323\xff"), true)
	if want := "\u1ea1" + strings.Repeat("\u0351", 40) + "\xff"; err != nil || string(out) != want {
		t.Errorf("%+q, %v, expected %+q", out, err, want)
	}
}
