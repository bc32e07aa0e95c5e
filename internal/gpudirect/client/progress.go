// SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// progress detects a listing over HTTP that goes in a circle. A malicious server or a broken proxy can send a token
// that leads back to an earlier page, and the listing would never end.
//
// progress uses Brent's algorithm: it remembers one earlier page and compares every page with it. After 1, 2, 4, 8 …
// pages it remembers a later page instead. So it finds a circle of any length with constant memory. Page.Next carries
// the state, because each page is a separate call.
type progress struct {
	token, first uint64 // hashes of the remembered page's token and of its first name; 0 if there is none
	steps, power uint32 // pages since that page, and the number of pages after which the next one is remembered
}

// progressText is the format of a progress in Page.Next, between the mark and the token.
const progressText = "%016x%016x%08x%08x."

// progressLength is the length of a progress in this format, in bytes.
const progressLength = 16 + 16 + 8 + 8 + 1

// begun returns the progress of a listing before its first page.
func begun() progress { return progress{power: 1} }

// resumed reads the progress and the token from what follows the mark in Page.Next.
func resumed(next string) (p progress, token string, ok bool) {
	if len(next) < progressLength {
		return p, "", false
	}
	n, err := fmt.Sscanf(next[:progressLength], progressText, &p.token, &p.first, &p.steps, &p.power)
	return p, next[progressLength:], n == 4 && err == nil && p.power > 0
}

// next returns the progress after a page. It returns false if the listing goes in a circle: the page has the token or
// the first name of the remembered page. A correct listing has no name twice.
func (p progress) next(page s3.Page) (progress, bool) {
	token, first := hashOf(page.Next), uint64(0)
	switch {
	case len(page.Entries) > 0:
		first = hashOf("k" + page.Entries[0].Key)
	case len(page.Groups) > 0:
		first = hashOf("g" + page.Groups[0])
	}
	if token == p.token || first != 0 && first == p.first {
		return p, false
	}
	if p.steps++; p.steps >= p.power {
		p = progress{token: token, first: first, power: min(2*p.power, 1<<30)}
	}
	return p, true
}

// after returns the value of Page.Next for a page with this token.
func (p progress) after(token string) string {
	var b strings.Builder
	b.WriteString(tokenMark)
	fmt.Fprintf(&b, progressText, p.token, p.first, p.steps, p.power)
	return b.String() + token
}

// hashOf returns a hash of s that is never 0.
func hashOf(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s)) // never fails
	return h.Sum64() | 1
}
