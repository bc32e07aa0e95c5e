// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// replyOf returns the whole reply for a span.
func replyOf(id object.Identity, span Span) []byte {
	b := appendHeader(nil, id, span)
	for i := span.First; i < span.First+span.Count; i++ {
		data := contentOf(id, i)
		b = append(appendBlock(b, Block{Index: i, Sum: checksum.Of(data), Data: data}), data...)
	}
	return b
}

// readFrames reads a reply and returns the number of right blocks.
func readFrames(reply io.Reader, id object.Identity, span Span) (n int64, err error) {
	f := newFrames(reply, id, span)
	if err := f.header(); err != nil {
		return 0, err
	}
	for ; ; n++ {
		b, err := f.block()
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		if !bytes.Equal(b.Data, contentOf(id, b.Index)) || b.Index != span.First+n {
			return n, errors.New("a wrong block was accepted")
		}
	}
}

// TestFramesDetectEveryChange flips one bit of each byte of a reply, cuts the reply at each byte and adds bytes.
func TestFramesDetectEveryChange(t *testing.T) {
	id := objectOf("small", BlockSize+100)
	span := Span{First: 1, Count: 1} // the short last block
	reply := replyOf(id, span)
	if int64(len(reply)) != replyBytes(id, span) {
		t.Fatalf("the reply has %d bytes; replyBytes says %d", len(reply), replyBytes(id, span))
	}
	if n, err := readFrames(bytes.NewReader(reply), id, span); n != 1 || err != nil {
		t.Fatalf("%d blocks, %v", n, err)
	}
	for i := range reply {
		bad := bytes.Clone(reply)
		bad[i] ^= 1 << (i % 8)
		if _, err := readFrames(bytes.NewReader(bad), id, span); !errs.Is(err, errs.Corrupt) {
			t.Errorf("byte %d changed: %v", i, err)
		}
		if _, err := readFrames(bytes.NewReader(reply[:i]), id, span); err == nil || errs.Is(err, errs.Corrupt) {
			t.Errorf("reply cut at byte %d: %v; expected an end in the middle", i, err)
		}
	}
	if _, err := readFrames(bytes.NewReader(append(reply, 0)), id, span); !errs.Is(err, errs.Corrupt) {
		t.Errorf("a longer reply: %v", err)
	}
}

// TestSpans checks which spans exist.
func TestSpans(t *testing.T) {
	id := objectOf("x", object.Extent+3*mib+1)
	for _, s := range []Span{SpanOf(id, 0), SpanOf(id, 1), {0, 63, 1}, {1, 64, 1}, {1, 67, 1}} {
		if err := s.Check(id); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
	for _, s := range []Span{{}, {0, 0, 65}, {0, 64, 1}, {1, 0, 1}, {1, 64, 5}, {2, 128, 1}, {-1, 0, 1}, {0, -1, 1},
		{0, 0, -1}, {1, 64, math.MaxInt64}, {1, math.MaxInt64, 1}, {math.MaxInt64, 0, 1}} {
		if err := s.Check(id); !errs.Is(err, errs.Invalid) {
			t.Errorf("%+v: %v; expected an error of kind Invalid", s, err)
		}
	}
	if r := SpanOf(id, 1).Range(id); r.Off != object.Extent || r.N != 3*mib+1 {
		t.Errorf("range of the last extent: %+v", r)
	}
}

// TestRequests encodes requests with difficult texts, and decodes them.
func TestRequests(t *testing.T) {
	for _, key := range []string{"a", "a b/ü\x00&=?#%zz+", strings.Repeat("é", 512)} {
		id := objectOf(key, 5)
		id.Version = "v/1=2"
		got, span, err := decodeRequest(encodeRequest(id, SpanOf(id, 0)))
		if err != nil || got != id || span != SpanOf(id, 0) {
			t.Errorf("%q: %+v %+v %v", key, got, span, err)
		}
		if n := len(encodeRequest(id, span)); n > maxHeader {
			t.Errorf("the request has %d bytes", n)
		}
	}
	good := encodeRequest(objectOf("a", 5), Span{Count: 1})
	for _, bad := range []string{"", "x", good + "&key=b", good + "&more=1", strings.Replace(good, "key", "kex", 1),
		strings.Replace(good, "size=5", "size=-5", 1), strings.Replace(good, "size=5", "size=05", 1),
		strings.Replace(good, "size=5", "size=9223372036854775807", 1), strings.Replace(good, "count=1", "count=2", 1),
		strings.Replace(good, "key=a", "key="+strings.Repeat("a", maxKey+1), 1), good + ";"} {
		if _, _, err := decodeRequest(bad); !errs.Is(err, errs.Invalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// FuzzFrames reads arbitrary replies. No reply is accepted unless its blocks are those of their checksums.
func FuzzFrames(f *testing.F) {
	id := objectOf("small", 3*BlockSize+100)
	span := Span{First: 2, Count: 2}
	f.Add(replyOf(id, Span{First: 3, Count: 1}))
	f.Add(appendHeader(nil, id, span))
	f.Fuzz(func(t *testing.T, reply []byte) {
		r := newFrames(bytes.NewReader(reply), id, span)
		if r.header() != nil {
			return
		}
		for {
			b, err := r.block()
			if err != nil {
				return
			}
			if checksum.Of(b.Data) != b.Sum || int64(len(b.Data)) != lengthOf(id, b.Index) {
				t.Fatalf("block %d was accepted", b.Index)
			}
		}
	})
}

// FuzzRequest decodes arbitrary requests. An accepted request encodes to one that decodes to the same.
func FuzzRequest(f *testing.F) {
	f.Add(encodeRequest(objectOf("a", 5), Span{Count: 1}))
	f.Fuzz(func(t *testing.T, query string) {
		id, span, err := decodeRequest(query)
		if err != nil {
			return
		}
		if span.Range(id).N < 1 || span.Range(id).N > object.Extent || replyBytes(id, span) < headerBytes {
			t.Fatalf("%+v of %+v was accepted", span, id)
		}
		if id2, span2, err := decodeRequest(encodeRequest(id, span)); err != nil || id2 != id || span2 != span {
			t.Fatalf("%+v %+v became %+v %+v: %v", id, span, id2, span2, err)
		}
	})
}

// FuzzAbout decodes arbitrary descriptions of members.
func FuzzAbout(f *testing.F) {
	b, _ := about{Version: 1, Port: 9002, Zone: "rack-1", Weight: 100}.encode()
	f.Add(b)
	f.Add([]byte(`{"v":1,"p":1,"w":-1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decodeAbout(b)
		if err != nil {
			return
		}
		enc, err := a.encode()
		if err != nil || len(enc) > 512 {
			t.Fatalf("%+v: %d bytes, %v", a, len(enc), err)
		}
		if again, err := decodeAbout(enc); err != nil || again.Weight != a.Weight || again.Port != a.Port {
			t.Fatalf("%+v became %+v: %v", a, again, err)
		}
	})
}
