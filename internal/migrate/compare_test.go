// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/copying/versions"
)

// history makes versions, oldest first: a letter for content, x for a delete marker, 0 before a null version, and a
// digit behind it for the second in which it was written. The server names version i "PREFIX i".
func history(prefix, text string) versions.Key {
	k := versions.Key{Name: "k"}
	for i, word := range strings.Fields(text) {
		e := versions.Entry{Key: "k", Version: prefix + word}
		if rest, ok := strings.CutPrefix(word, "0"); ok {
			e.Version, word = "null", rest
		}
		e.Marker = word[0] == 'x'
		if e.ETag = word[:1]; e.Marker {
			e.ETag = ""
		}
		e.Modified = time.Unix(int64(word[1]-'0'), 0)
		e.Latest = i == len(strings.Fields(text))-1
		k.Entries = append(k.Entries, e)
	}
	return k
}

func TestCompareAddsOnlyAboveTheNewest(t *testing.T) {
	for _, c := range []struct {
		name, source, target string
		add                  string // "!" means that the key is refused
		kept                 int64
	}{
		{"nothing there", "a1 x2 b3", "", "a1 x2 b3", 0},
		{"all there", "a1 x2 b3", "a1 x2 b3", "", 0},
		{"a part is there", "a1 x2 b3", "a1", "x2 b3", 0},
		{"the source deleted an old version", "b2 c3", "a1 b2", "c3", 1},
		{"the source deleted its newest version and wrote another", "a1 c3", "a1 b2", "c3", 1},
		{"a null version was replaced", "0b2", "0a1", "0b2", 1},
		{"a null version is not a version", "0a1", "a1", "!", 1},
		{"somebody wrote at the target", "a1 b2", "a1 c3", "!", 1},
		{"somebody wrote at the target what the source has not", "a1", "a1 c3", "", 1},
		{"a version in the middle is missing", "a1 b2 c3", "a1 c3", "!", 1},
		{"twins of one moment", "a1 a1 b2", "a1", "a1 b2", 0},
		{"a version and a marker of one moment", "x1 a1 b2", "a1 x1 b2", "", 0},
	} {
		source, target := history("s", c.source), history("t", c.target)
		p := compare("b", &source, &target)
		var got []string
		for _, e := range p.add {
			got = append(got, strings.TrimPrefix(e.Version, "s"))
			if e.Version == "null" {
				got[len(got)-1] = "0" + e.ETag + e.Modified.UTC().Format("5")
			}
		}
		text := strings.Join(got, " ")
		if p.refused != nil {
			text = "!"
		}
		if text != c.add || p.kept != c.kept {
			t.Errorf("%s: adds %q and keeps %d, expected %q and %d (%v)", c.name, text, p.kept, c.add, c.kept, p.refused)
		}
	}
}

func TestPlainDocumentKeepsElementsAndTexts(t *testing.T) {
	const minio = `<?xml version="1.0" encoding="UTF-8"?>
<VersioningConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Status>Enabled</Status></VersioningConfiguration>`
	const ours = "<VersioningConfiguration>\n <Status> Enabled </Status></VersioningConfiguration>"
	if got := string(
		plainDocument([]byte(minio))); got != "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>" {
		t.Errorf("plain document %s", got)
	}
	if !sameDocument([]byte(minio), []byte(ours)) {
		t.Error("the same settings of two servers differ")
	}
	if got := string(plainDocument([]byte("<a><b>x &amp; y</b></a>"))); got != "<a><b>x &amp; y</b></a>" {
		t.Errorf("escaped text becomes %s", got)
	}
	for text, want := range map[string]bool{"<A/>": true, "<A> </A>": true, "<A><B/></A>": false, "": true} {
		if isEmpty([]byte(text)) != want {
			t.Errorf("isEmpty(%q) is %v", text, !want)
		}
	}
}

func FuzzPlainDocument(f *testing.F) {
	f.Add([]byte("<a><b>x</b></a>"))
	f.Add([]byte(`{"Version": "x"}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		if !sameDocument(doc, doc) {
			t.Error("a document differs from itself")
		}
		isEmpty(doc)
	})
}
