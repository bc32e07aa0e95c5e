// SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// progress tells a listing over HTTP that gets on from one in a circle. A server that lies, or a broken proxy, can send
// pages whose tokens lead back to an earlier page, and the listing would never end.
//
// It is Brent's algorithm: one earlier page is remembered, and every page is compared with it. After 1, 2, 4, 8 … pages
// a later page is remembered instead. So a circle of any length is found with constant memory. The state travels in
// Page.Next, since each page is asked for by a call of its own.
type progress struct {
	token, first uint64 // hashes of the remembered page's token and of the first name in it; 0: there is none
	steps, power uint32 // pages since it was remembered, and after how many the next one is
}

// progressText is a progress as Page.Next has it, between the mark and the token.
const progressText = "%016x%016x%08x%08x."

// progressLength is the length of such a text.
const progressLength = 16 + 16 + 8 + 8 + 1

// begun is the progress of a listing without a page.
func begun() progress { return progress{power: 1} }

// resumed reads the progress and the token from what follows the mark in Page.Next.
func resumed(next string) (p progress, token string, ok bool) {
	if len(next) < progressLength {
		return p, "", false
	}
	n, err := fmt.Sscanf(next[:progressLength], progressText, &p.token, &p.first, &p.steps, &p.power)
	return p, next[progressLength:], n == 4 && err == nil && p.power > 0
}

// next returns the progress behind a page, or false where the listing goes in a circle: the page's token or its first
// name are those of the page that is remembered. No name stands twice in a listing.
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

// after is Page.Next behind a page with a token.
func (p progress) after(token string) string {
	var b strings.Builder
	b.WriteString(tokenMark)
	fmt.Fprintf(&b, progressText, p.token, p.first, p.steps, p.power)
	return b.String() + token
}

// hashOf is a hash that is never 0.
func hashOf(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s)) // it takes every write
	return h.Sum64() | 1
}
