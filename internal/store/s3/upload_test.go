// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// pieces gives data in blocks, through one buffer that is overwritten: what is kept of a block too long shows.
type pieces struct {
	data  []byte
	block int
	buf   []byte
	open  *atomic.Int64
	fail  error
	done  bool
}

func (p *pieces) Next() ([]byte, error) {
	for i := range p.buf {
		p.buf[i] = 0xdb
	}
	if len(p.data) == 0 {
		if p.fail != nil {
			return nil, p.fail
		}
		return nil, io.EOF
	}
	n := min(p.block, len(p.data))
	p.buf = append(p.buf[:0], p.data[:n]...)
	p.data = p.data[n:]
	return p.buf, nil
}

func (p *pieces) Close() error {
	if !p.done {
		p.done = true
		p.open.Add(-1)
	}
	return nil
}

const testBlock = 64 << 10

// upload sends data in parts of that size, one after the other.
func upload(t *testing.T, c *Client, put Put, data []byte, part int) (*Upload, error) {
	t.Helper()
	u, err := c.NewUpload(put)
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Begin(bg); err != nil {
		return u, err
	}
	var open atomic.Int64
	for n, at := 1, 0; at < len(data); n, at = n+1, at+part {
		p := data[at:min(len(data), at+part)]
		err := u.Part(bg, n, int64(len(p)), testBlock, func() (vfs.Blocks, error) {
			open.Add(1)
			return &pieces{data: p, block: testBlock, open: &open}, nil
		})
		if err != nil {
			return u, err
		}
	}
	err = u.Complete(bg)
	c.Close()
	if n := open.Load(); err == nil && n != 0 {
		t.Errorf("%d sources were left open", n)
	}
	return u, err
}

func TestUploadInParts(t *testing.T) {
	for name, noSums := range map[string]bool{"with checksums": false, "to a server that knows none": true} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.noSums = noSums
			data := noise(1<<20+77, 11)
			u, err := upload(t, s.client(nil), Put{Bucket: "b", Key: "k ü"}, data, 300_000)
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := s.get("b/k ü"); !bytes.Equal(got, data) {
				t.Fatal("other bytes arrived")
			}
			i := u.Info()
			if i.Size != int64(len(data)) || i.CRC64 != checksum.Of(data) || i.Version != "v9" || i.ETag == "" ||
				i.Key != "k ü" {
				t.Errorf("info %+v", i)
			}
			if notes := strings.Join(u.Notes(), " "); strings.Contains(notes, "without") != noSums {
				t.Errorf("notes %q", notes)
			}
			if err := u.Abort(bg); err != nil || len(s.uploads) > 1 {
				t.Errorf("%v, %d uploads", err, len(s.uploads))
			}
			if u.Traffic().Requests < 6 {
				t.Errorf("%+v", u.Traffic())
			}
		})
	}
}

func TestFramesAreAsLongAsSaid(t *testing.T) {
	for _, size := range []int64{1, 5, testBlock - 1, testBlock, testBlock + 1, 3*testBlock + 17} {
		for _, framed := range []bool{true, false} {
			var open atomic.Int64
			data := noise(size, 12)
			p := &payload{src: &pieces{data: data, block: testBlock, open: &open}, join: checksum.NewJoiner(), framed: framed}
			got, err := io.ReadAll(p)
			want := size
			if framed {
				want = framedSize(size, testBlock)
			}
			if sum, n, whole := p.result(); err != nil || int64(len(got)) != want || !whole || n != size ||
				sum != checksum.Of(data) {
				t.Errorf("%d framed %v: %d bytes, expected %d; %v", size, framed, len(got), want, err)
			}
		}
	}
}

func TestPartsAreSentAgain(t *testing.T) {
	data := noise(1<<20, 13)
	for name, odd := range map[string]func(w http.ResponseWriter, r *http.Request){
		"reset at once": func(w http.ResponseWriter, r *http.Request) { reset(w, "", nil) },
		"503 unread":    func(w http.ResponseWriter, r *http.Request) { refuse(w, 503, "SlowDown", "") },
		"500 read": func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			refuse(w, 500, "InternalError", "")
		},
		"bad digest": func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			refuse(w, 400, "BadDigest", "")
		},
		"reset inside": func(w http.ResponseWriter, r *http.Request) {
			io.CopyN(io.Discard, r.Body, 100_000)
			reset(w, "", nil)
		},
		"other bytes": func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.Header().Set("ETag", "x")
			w.Header().Set(trailerName, sumText(5))
		},
		"no ETag": func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			n := 0
			s.odd = func(_ int, w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodPut {
					return false
				}
				if n++; n%2 == 0 {
					return false
				}
				odd(w, r)
				return true
			}
			u, err := upload(t, s.client(nil), Put{Bucket: "b", Key: "k"}, data, 400_000)
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := s.get("b/k"); !bytes.Equal(got, data) {
				t.Fatal("other bytes arrived")
			}
			if u.Traffic().Retries < 3 {
				t.Errorf("%+v", u.Traffic())
			}
		})
	}
}

func TestTheReplyToACompletionIsLost(t *testing.T) {
	s := newServer(t)
	s.dead = true
	data := noise(600_000, 14)
	u, err := upload(t, s.client(nil), Put{Bucket: "b", Key: "k"}, data, 300_000)
	if err != nil || u.Info().Size != int64(len(data)) ||
		!strings.Contains(strings.Join(u.Notes(), ""), "reply to the completion was lost") {
		t.Fatalf("%v, %+v, %q", err, u.Info(), u.Notes())
	}
	// Where another object is there instead, it is an error.
	s.dead = true
	s.odd = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodHead {
			s.put("b/k", noise(600_000, 15))
		}
		return false
	}
	if _, err := upload(t, s.client(nil), Put{Bucket: "b", Key: "k"}, data, 300_000); CodeOf(err) != "NoSuchUpload" {
		t.Errorf("got %v", err)
	}
}

func TestACompletionThatFailsLate(t *testing.T) {
	s := newServer(t)
	late := 0
	s.odd = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost || r.URL.Query().Has("uploads") {
			return false
		}
		if late++; late > 2 {
			return false
		}
		io.WriteString(w, "   <Error><Code>InternalError</Code></Error>")
		return true
	}
	data := noise(100_000, 16)
	if _, err := upload(t, s.client(nil), Put{Bucket: "b", Key: "k"}, data, 60_000); err != nil || late != 3 {
		t.Errorf("%v after %d", err, late)
	}
	s.odd = nil
	if _, err := upload(t, s.client(nil), Put{Bucket: "b", Key: "k", IfNoneMatch: "*"}, data,
		60_000); CodeOf(err) != "PreconditionFailed" || !errs.Is(err, errs.Invalid) {
		t.Errorf("got %v", err)
	}
}

func TestSourcesThatFailAreNotTriedAgain(t *testing.T) {
	s := newServer(t)
	u, _ := s.client(nil).NewUpload(Put{Bucket: "b", Key: "k"})
	if err := u.Begin(bg); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("the device is gone")
	var opened, open atomic.Int64
	err := u.Part(bg, 1, 2*testBlock, testBlock, func() (vfs.Blocks, error) {
		opened.Add(1)
		open.Add(1)
		return &pieces{data: noise(testBlock, 1), block: testBlock, open: &open, fail: broken}, nil
	})
	if !errors.Is(err, broken) || opened.Load() != 1 {
		t.Errorf("%v after %d", err, opened.Load())
	}
	if err := u.Abort(bg); err != nil || len(s.uploads) != 0 {
		t.Errorf("%v, %d uploads left", err, len(s.uploads))
	}
}

func TestAbortWorksThoughTheCallerHasGone(t *testing.T) {
	s := newServer(t)
	u, _ := s.client(nil).NewUpload(Put{Bucket: "b", Key: "k"})
	if err := u.Begin(bg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(bg)
	cancel()
	if err := u.Abort(ctx); err != nil || len(s.uploads) != 0 {
		t.Errorf("%v, %d uploads left", err, len(s.uploads))
	}
}

func putBytes(c *Client, p Put, data []byte) (Info, error) {
	u, err := c.NewUpload(p)
	if err != nil {
		return Info{}, err
	}
	err = u.Whole(bg, int64(len(data)), func() (vfs.Blocks,
		error) {
		return &pieces{data: data, block: testBlock, open: new(atomic.Int64)}, nil
	})
	return u.Info(), err
}

func TestPutInOneRequest(t *testing.T) {
	for name, noSums := range map[string]bool{"with checksums": false, "to a server that knows none": true} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.noSums = noSums
			c := s.client(nil)
			for _, data := range [][]byte{{}, []byte("hello")} {
				i, err := putBytes(c, Put{Bucket: "b", Key: "k", ContentType: "text/x", Metadata: map[string]string{"who": "me"}},
					data)
				if err != nil || i.Size != int64(len(data)) || i.ETag == "" {
					t.Fatalf("%+v, %v", i, err)
				}
				h, err := c.Head(bg, "b", "k", "")
				if err != nil || h.ContentType != "text/x" || h.Metadata["who"] != "me" || h.Size != int64(len(data)) ||
					h.HasCRC64 == noSums {
					t.Errorf("%+v, %v", h, err)
				}
			}
			_, err := putBytes(c, Put{Bucket: "b", Key: "k", IfNoneMatch: "*"}, []byte("x"))
			if CodeOf(err) != "PreconditionFailed" {
				t.Errorf("got %v", err)
			}
			for _, p := range []Put{{Bucket: "", Key: "k"}, {Bucket: "b/c", Key: "k"}, {Bucket: "b"}} {
				if _, err := putBytes(c, p, nil); !errs.Is(err, errs.Invalid) {
					t.Errorf("%+v: %v", p, err)
				}
			}
		})
	}
}
