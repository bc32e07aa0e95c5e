// SPDX-License-Identifier: Apache-2.0

package place

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// lister returns one page of a listing; s3.Client implements it.
type lister interface {
	List(ctx context.Context, l s3.Listing) (s3.Page, error)
}

// mostEmpty is the most pages without entries that follow each other. Servers send such pages when they filter, and a
// broken server sends them for ever.
const mostEmpty = 1000

// walkPages calls each with all entries, and group with all groups if it is not nil. It refuses a listing that leads
// back: the keys of each page come after those of the page before, so that no server can repeat itself without end.
func walkPages(ctx context.Context, c lister, l s3.Listing, group func(string) error, each func(s3.Entry) error) error {
	bad := func(msg string) error {
		return errs.New(errs.Corrupt, "list", clip(s3.URL(l.Bucket, l.Prefix)), msg).
			WithFix("this server's listings cannot be trusted: try its newest release, or another server")
	}
	type position struct {
		name  string
		given bool
	}
	var key, prefix position // the last entry and the last group
	later := func(p *position, name string) error {
		if !strings.HasPrefix(name, l.Prefix) {
			return bad(fmt.Sprintf("the server lists %s, which does not begin with the prefix", strconv.Quote(clip(name))))
		}
		if p.given && name <= p.name {
			return bad(fmt.Sprintf("the server lists %s after %s, which is not the order of keys", strconv.Quote(clip(name)),
				strconv.Quote(clip(p.name))))
		}
		p.name, p.given = name, true
		return nil
	}
	for empty := 0; ; {
		page, err := c.List(ctx, l)
		if err != nil {
			return err
		}
		for _, g := range page.Groups {
			if err := later(&prefix, g); err != nil {
				return err
			}
			if group == nil {
				return bad("the server sends groups that were not asked for")
			}
			if err := group(g); err != nil {
				return err
			}
		}
		for _, e := range page.Entries {
			if err := later(&key, e.Key); err != nil {
				return err
			}
			if err := each(e); err != nil {
				return err
			}
		}
		if page.Next == "" {
			return nil
		}
		if empty++; len(page.Entries)+len(page.Groups) > 0 {
			empty = 0
		}
		if empty > mostEmpty || empty > 0 && page.Next == l.Token {
			return bad(fmt.Sprintf("the server sends page after page without any key, %d by now", empty))
		}
		l.Token = page.Next
	}
}
