// SPDX-License-Identifier: Apache-2.0

package upstream_test

import (
	"encoding/xml"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/upstream"
)

// pager is an upstream that lists the entries of a bucket in pages of its own making.
type pager struct {
	entries []paged // in the order of a listing
	random  *rand.Rand

	second     bool // knows the second version of the listing
	most       int  // entries of its longest page
	ignores    bool // ignores how many entries are asked for
	repeats    bool // begins a page with the entry that the position names
	naive      bool // takes a common prefix as position for a key in front of the keys below the prefix
	emptyPages bool // sends a page without entries now and then, with the position of the next page
	bare       bool // names no position for the next page unless it must
	tokens     map[string]int
}

// paged is one entry: an object, a version or an upload.
type paged struct{ key, id string }

// rolled is an entry of a page, or a common prefix.
type rolled struct {
	paged
	group bool
}

// page returns the entries from index start on that the request asks for, and the index behind them.
func (p *pager) page(q url.Values, start int, after string) (out []rolled, next int) {
	asked, err := strconv.Atoi(first(q, "max-keys", "max-uploads"))
	if err != nil || p.ignores {
		asked = 1000
	}
	asked = min(asked, p.most)
	prefix, delimiter, last := q.Get("prefix"), q.Get("delimiter"), ""
	if !p.naive && delimiter != "" && strings.HasSuffix(after, delimiter) {
		last = after // the whole group is behind the position
	}
	for next = start; next < len(p.entries); next++ {
		e := p.entries[next]
		if !strings.HasPrefix(e.key, prefix) {
			continue
		}
		if delimiter != "" {
			if i := strings.Index(e.key[len(prefix):], delimiter); i >= 0 {
				group := e.key[:len(prefix)+i+len(delimiter)]
				if group == last {
					continue
				}
				if len(out) == asked {
					return out, next
				}
				last = group
				out = append(out, rolled{paged{group, ""}, true})
				continue
			}
		}
		if len(out) == asked {
			return out, next
		}
		out = append(out, rolled{e, false})
	}
	return out, next
}

// first returns the first argument that is set.
func first(q url.Values, names ...string) string {
	for _, n := range names {
		if v := q.Get(n); v != "" {
			return v
		}
	}
	return ""
}

// ServeHTTP answers requests for listings.
func (p *pager) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	kind := "ListBucketResult"
	switch {
	case q.Has("versions"):
		kind = "ListVersionsResult"
	case q.Has("uploads"):
		kind = "ListMultipartUploadsResult"
	case q.Get("list-type") == "2" && !p.second:
		w.WriteHeader(http.StatusNotImplemented)
		return
	}
	after, id := first(q, "marker", "start-after", "key-marker"), first(q, "version-id-marker", "upload-id-marker")
	start := 0
	if token := q.Get("continuation-token"); token != "" {
		start = p.tokens[token]
	} else if after != "" {
		start = p.behind(after, id)
	}
	out, next := []rolled(nil), start
	// A page without entries moves the position on, behind keys that are not listed.
	empty := p.emptyPages && p.random.IntN(4) == 0 && (q.Get("list-type") == "2" || after != "" && start > 0 &&
		start < len(p.entries) && p.entries[start-1].key < p.entries[start].key && !strings.HasSuffix(after, "\x01"))
	if !empty {
		for p.repeats && after != "" && start > 0 && p.entries[start-1].key == after &&
			(id == "" || p.entries[start-1].id == id) {
			start--
		}
		out, next = p.page(q, start, after)
	}
	more := slices.ContainsFunc(p.entries[next:], func(e paged) bool { return strings.HasPrefix(e.key, q.Get("prefix")) })
	p.write(w, kind, q, out, next, more, empty)
}

// behind returns the index of the first entry behind a position.
func (p *pager) behind(after, id string) int {
	for i, e := range p.entries {
		if e.key > after && id == "" || id != "" && e.key == after && e.id == id {
			if id != "" {
				i++
			}
			return i
		}
	}
	return len(p.entries)
}

// write writes a page.
func (p *pager) write(w http.ResponseWriter, kind string, q url.Values, out []rolled, next int, more, empty bool) {
	var b strings.Builder
	text := func(name, value string) {
		fmt.Fprintf(&b, "<%s>", name)
		_ = xml.EscapeText(&b, []byte(url.QueryEscape(value)))
		fmt.Fprintf(&b, "</%s>", name)
	}
	fmt.Fprintf(&b, "<%s><EncodingType>url</EncodingType><IsTruncated>%t</IsTruncated>", kind, more)
	if more && (!p.bare || empty || q.Get("list-type") == "2") && next > 0 {
		e := p.entries[next-1]
		if empty {
			e = paged{e.key + "\x01", ""}
		}
		switch kind {
		case "ListVersionsResult":
			text("NextKeyMarker", e.key)
			fmt.Fprintf(&b, "<NextVersionIdMarker>%s</NextVersionIdMarker>", e.id)
		case "ListMultipartUploadsResult":
			text("NextKeyMarker", e.key)
			fmt.Fprintf(&b, "<NextUploadIdMarker>%s</NextUploadIdMarker>", e.id)
		default:
			text("NextMarker", e.key)
		}
	}
	if more && q.Get("list-type") == "2" {
		token := fmt.Sprintf("t%d", len(p.tokens))
		p.tokens[token] = next
		fmt.Fprintf(&b, "<NextContinuationToken>%s</NextContinuationToken>", token)
	}
	for _, e := range out {
		switch {
		case e.group:
			b.WriteString("<CommonPrefixes>")
			text("Prefix", e.key)
			b.WriteString("</CommonPrefixes>")
		case kind == "ListVersionsResult":
			b.WriteString("<Version>")
			text("Key", e.key)
			fmt.Fprintf(&b, "<VersionId>%s</VersionId><ETag>x</ETag></Version>", e.id)
		case kind == "ListMultipartUploadsResult":
			b.WriteString("<Upload>")
			text("Key", e.key)
			fmt.Fprintf(&b, "<UploadId>%s</UploadId></Upload>", e.id)
		default:
			b.WriteString("<Contents>")
			text("Key", e.key)
			b.WriteString("<ETag>x</ETag></Contents>")
		}
	}
	fmt.Fprintf(&b, "</%s>", kind)
	_, _ = w.Write([]byte(b.String())) // the client has gone if it fails
}

// newPager makes a bucket with random keys. If several is set, a key can have more than one entry, as a key with
// several versions or uploads has.
func newPager(random *rand.Rand, several bool) *pager {
	coin := func() bool { return random.IntN(2) == 0 }
	p := &pager{random: random, second: coin(), most: 2 + random.IntN(9), ignores: random.IntN(4) == 0, repeats: coin(),
		naive: coin(), emptyPages: coin(), bare: coin(), tokens: map[string]int{}}
	keys := map[string]bool{}
	for range 1 + random.IntN(40) {
		var b strings.Builder
		for range 1 + random.IntN(5) {
			b.WriteString([]string{"a", "b", "/", "ü", "%", " ", "z"}[random.IntN(7)])
		}
		keys[b.String()] = true
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		n := 1
		if several {
			n += random.IntN(4)
		}
		for i := range n {
			p.entries = append(p.entries, paged{"p/" + key, fmt.Sprintf("id%d", i)})
		}
	}
	slices.SortFunc(p.entries, func(a, b paged) int { return strings.Compare(a.key+"\x00"+a.id, b.key+"\x00"+b.id) })
	return p
}

// TestPagesNeverRepeatOrLoseAnEntry lists buckets of upstreams whose pages differ from ours, in pages of random
// lengths. All pages together must have each entry once, in order.
func TestPagesNeverRepeatOrLoseAnEntry(t *testing.T) {
	for seed := range uint64(400) {
		random := rand.New(rand.NewPCG(18, seed))
		kind := []string{"objects", "versions", "uploads"}[seed%3]
		p := newPager(random, kind != "objects")
		b := hostile(t, p.ServeHTTP, nil).Through("local", nil)
		delimiter := []string{"", "/", "a"}[random.IntN(3)]
		prefix := []string{"", "a", "a/", "b"}[random.IntN(4)]
		all := *p
		all.most, all.ignores, all.naive = 1<<20, true, false
		whole, _ := all.page(url.Values{"prefix": {"p/" + prefix}, "delimiter": {delimiter}}, 0, "")
		var want []string
		for _, e := range whole {
			id := e.id
			if kind == "objects" || e.group {
				id = ""
			}
			want = append(want, strings.TrimPrefix(e.key, "p/")+"\x00"+id)
		}
		got, err := listAll(t, b, kind, prefix, delimiter, random)
		if err != nil || !slices.Equal(got, want) {
			p.entries, p.tokens = nil, nil
			t.Fatalf("seed %d, %s below %q by %q of %+v: error %v\n got %q\nwant %q", seed, kind, prefix, delimiter, p, err, got,
				want)
		}
	}
}

// listAll lists everything in pages of random lengths.
func listAll(t *testing.T, b *upstream.Through, kind, prefix, delimiter string,
	random *rand.Rand) (all []string, err error) {
	t.Helper()
	after, id := "", ""
	for range 10_000 {
		var page []string
		var more bool
		limit := 1 + random.IntN(7)
		if kind == "uploads" {
			var p object.UploadPage
			p, err = b.ListUploads(t.Context(), object.UploadList{Bucket: "local", Prefix: prefix, Delimiter: delimiter,
				AfterKey: after, AfterID: id, Limit: limit})
			for _, u := range p.Uploads {
				page = append(page, u.Key+"\x00"+u.ID)
			}
			for _, g := range p.Prefixes {
				page = append(page, g+"\x00")
			}
			more, after, id = p.Truncated, p.NextKey, p.NextID
		} else {
			var p object.Page
			p, err = b.List(t.Context(), object.List{Bucket: "local", Prefix: prefix, Delimiter: delimiter, After: after,
				AfterVersion: id, Limit: limit, Versions: kind == "versions"})
			for _, o := range p.Objects {
				page = append(page, o.Key+"\x00"+o.Version)
			}
			for _, g := range p.Prefixes {
				page = append(page, g+"\x00")
			}
			more, after, id = p.Truncated, p.Next, p.NextVersion
		}
		if err != nil {
			return all, err
		}
		if len(page) > limit || more && len(page) == 0 {
			t.Errorf("a page of %d entries, asked for %d; more follow: %v", len(page), limit, more)
		}
		slices.Sort(page) // objects come in front of the common prefixes
		if all = append(all, page...); !more {
			return all, nil
		}
	}
	return all, fmt.Errorf("the listing does not end")
}
