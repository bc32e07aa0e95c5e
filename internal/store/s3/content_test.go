// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
)

func header32(sum uint32) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))
}

// Whatever checksum a server keeps of the whole: who reads all of it, in any
// order and in any pieces, hears when it is another one.
func TestTheWholeIsComparedInPieces(t *testing.T) {
	data := noise(1<<20+333, 41)
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	for name, c := range map[string]struct {
		header      http.Header
		compared    string // empty: nothing to compare with
		rightOrNone bool
	}{
		"crc64nvme": {http.Header{"X-Amz-Checksum-Crc64nvme": {sumText(checksum.Of(data))}}, "crc64nvme", true},
		"crc32": {http.Header{"X-Amz-Checksum-Crc32": {header32(crc32.ChecksumIEEE(data))},
			"X-Amz-Checksum-Type": {"FULL_OBJECT"}}, "crc32", true},
		"crc32c": {http.Header{"X-Amz-Checksum-Crc32c": {header32(crc32.Checksum(data, castagnoli))}}, "crc32c",
			true},
		"wrong crc64nvme": {http.Header{"X-Amz-Checksum-Crc64nvme": {sumText(7)}}, "crc64nvme", false},
		"wrong crc32":     {http.Header{"X-Amz-Checksum-Crc32": {header32(7)}}, "crc32", false},
		"of parts": {http.Header{"X-Amz-Checksum-Crc32": {header32(7) + "-3"}, "X-Amz-Checksum-Type": {"COMPOSITE"}},
			"", true},
		"none":    {nil, "", true},
		"rubbish": {http.Header{"X-Amz-Checksum-Crc32": {"??"}, "X-Amz-Checksum-Crc64nvme": {"AAAA"}}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.noSums = true
			s.objects["b/k"] = stored{data: data, etag: "e", head: c.header}
			cl := s.client(nil)
			o, err := cl.Open(bg, "b", "k", "")
			if err != nil {
				t.Fatal(err)
			}
			cuts := []int64{0, 8, 4000, 4001, 500_000, 1 << 20, int64(len(data))}
			var failed error
			for _, i := range rand.Perm(len(cuts) - 1) {
				r, err := o.Fetch(bg, cuts[i], cuts[i+1]-cuts[i])
				if err != nil {
					t.Fatal(err)
				}
				got := make([]byte, cuts[i+1]-cuts[i])
				_, err = io.ReadFull(r, got)
				r.Close()
				if err != nil {
					failed = err
				} else if !bytes.Equal(got, data[cuts[i]:cuts[i+1]]) {
					t.Fatal("other bytes")
				}
			}
			if (failed == nil) != c.rightOrNone || failed != nil &&
				(!errs.Is(failed, errs.Corrupt) || !strings.Contains(failed.Error(), c.compared)) {
				t.Errorf("got %v", failed)
			}
			notes := strings.Join(o.Notes(), " ")
			want := "was compared with the server's " + c.compared
			if c.compared == "" {
				want = "offers no checksum"
			}
			if c.rightOrNone && !strings.Contains(notes, want) {
				t.Errorf("notes %q", notes)
			}
			if _, _, err := cl.ReadAll(bg, "b", "k", "", 2<<20); (err == nil) != c.rightOrNone {
				t.Errorf("at once: %v", err)
			}
		})
	}
}

func TestWhatIsNotComparedIsSaid(t *testing.T) {
	s := newServer(t)
	s.put("b/k", noise(1000, 42))
	c := s.client(nil)
	read := func(o *Object, off, n int64) {
		t.Helper()
		r, err := o.Fetch(bg, off, n)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if _, err := io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	for want, do := range map[string]func(o *Object){
		"a part of it was read":               func(o *Object) { read(o, 0, 999) },
		"some bytes were read more than once": func(o *Object) { read(o, 0, 10); read(o, 5, 995); read(o, 0, 1000) },
		"the content was compared":            func(o *Object) { read(o, 0, 1000); read(o, 500, 500); read(o, 0, 500) },
	} {
		o, err := c.Open(bg, "b", "k", "")
		if err != nil {
			t.Fatal(err)
		}
		if do(o); !strings.Contains(strings.Join(o.Notes(), " "), want) {
			t.Errorf("notes %q, expected %q", o.Notes(), want)
		}
	}
	for name, do := range map[string]func(o *Object){"trusted": (*Object).Trust,
		"compared elsewhere": func(o *Object) { o.Sums() }} {
		o, err := c.Open(bg, "b", "k", "")
		if err != nil {
			t.Fatal(err)
		}
		do(o)
		if read(o, 0, 1000); len(o.Notes()) != 0 {
			t.Errorf("%s: %q", name, o.Notes())
		}
	}
}
