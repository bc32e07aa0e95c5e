// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"bytes"
	"context"
	"crypto/md5"
	"fmt"
	"io"
	"maps"
	"testing/iotest"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/object"
)

// funcReader calls what every Read is.
type funcReader func(p []byte) (int, error)

func (r funcReader) Read(p []byte) (int, error) { return r(p) }

// thenFails gives data and then an error.
func thenFails(data []byte, err error) io.Reader {
	return io.MultiReader(bytes.NewReader(data), iotest.ErrReader(err))
}

// bodySizes are lengths on both sides of everything that a store may keep inline.
var bodySizes = []int{1, 4096, 20_000, 1<<20 + 3}

var bodyTests = []test{
	{"of another length leave no trace", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		for _, n := range bodySizes {
			data := Bytes(uint64(n), n)
			for _, announced := range []int{n - 1, n + 1, n * 2, n / 2} {
				if announced == n {
					continue
				}
				for _, old := range []bool{false, true} {
					key := fmt.Sprintf("%d/%d/%v", n, announced, old)
					if old {
						f.put("b", key, []byte("old"))
					}
					p := object.Put{Bucket: "b", Key: key, Size: int64(announced), Body: bytes.NewReader(data)}
					p.Finish = func(object.Written) (map[string]string, error) {
						f.Errorf("Finish was called for %d bytes announced as %d", n, announced)
						return nil, nil
					}
					_, err := f.s.Put(f.ctx, p)
					f.fails(err, object.ErrIncompleteBody, "%d bytes announced as %d", n, announced)
					if old {
						f.holds(object.Ref{Bucket: "b", Key: key}, []byte("old"))
					} else {
						f.gone("b", key)
					}
				}
			}
		}
	}},
	{"that fail midway leave no trace", func(f *fixture) {
		f.bucket("b", object.VersioningEnabled, object.ETagMD5)
		for _, n := range bodySizes {
			for _, size := range []int64{-1, int64(n), int64(n) + 10} {
				body := thenFails(Bytes(1, n), errMine)
				_, err := f.s.Put(f.ctx, object.Put{Bucket: "b", Key: "k", Size: size, Body: body})
				f.fails(err, errMine, "a body that fails after %d of %d bytes", n, size)
				f.gone("b", "k")
			}
			body := thenFails(Bytes(1, n), io.ErrUnexpectedEOF)
			if _, err := f.s.Put(f.ctx, object.Put{Bucket: "b", Key: "k", Size: int64(n) + 1, Body: body}); err == nil {
				f.Fatal("a body that was cut off was taken")
			}
			f.gone("b", "k")
		}
		same(f, len(f.versions("b")), 0, "versions left behind")
	}},
	{"in odd pieces", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		for _, n := range []int{0, 1, 5000, 40_000} {
			data := Bytes(uint64(n), n)
			for name, wrap := range map[string]func(io.Reader) io.Reader{"one byte": iotest.OneByteReader,
				"half": iotest.HalfReader, "data with EOF": iotest.DataErrReader} {
				for _, size := range []int64{int64(n), -1} {
					i, err := f.s.Put(f.ctx, object.Put{Bucket: "b", Key: name, Size: size, Body: wrap(bytes.NewReader(data))})
					f.ok(err, "%s, %d bytes", name, n)
					same(f, i.ETag, MD5(data), "ETag, %s, %d bytes", name, n)
					f.holds(object.Ref{Bucket: "b", Key: name}, data)
				}
			}
		}
	}},
	{"Finish sees what was written", func(f *fixture) {
		f.bucket("m", object.VersioningOff, object.ETagMD5)
		f.bucket("c", object.VersioningOff, object.ETagCRC64)
		for _, n := range append([]int{0}, bodySizes...) {
			for _, bucket := range []string{"m", "c"} {
				for _, ask := range []bool{false, true} {
					data := Bytes(uint64(n), n)
					calls := 0
					f.put(bucket, "k", data, func(p *object.Put) {
						p.MD5 = ask
						p.Attributes = map[string]string{"a": "1", "b": "1"}
						p.Finish = func(w object.Written) (map[string]string, error) {
							calls++
							sum := md5.Sum(data)
							if w.Size != int64(n) || w.CRC64 != checksum.Of(data) {
								f.Errorf("Finish got %+v for %d bytes", w, n)
							}
							if (bucket == "m" || ask) && !bytes.Equal(w.MD5, sum[:]) {
								f.Errorf("Finish got MD5 %x, expected %x", w.MD5, sum)
							}
							return map[string]string{"b": "2", "c": "2"}, nil
						}
					})
					same(f, calls, 1, "calls of Finish")
					i := f.holds(object.Ref{Bucket: bucket, Key: "k"}, data)
					if want := map[string]string{"a": "1", "b": "2", "c": "2"}; !maps.Equal(i.Attributes, want) {
						f.Fatalf("attributes %v, expected %v", i.Attributes, want)
					}
				}
			}
		}
	}},
	{"an error of Finish ends it without a trace", func(f *fixture) {
		f.bucket("b", object.VersioningEnabled, object.ETagMD5)
		f.put("b", "old", []byte("old"))
		for _, n := range append([]int{0}, bodySizes...) {
			for _, key := range []string{"old", "new"} {
				_, err := f.s.Put(f.ctx, object.Put{Bucket: "b", Key: key, Size: -1, Body: bytes.NewReader(Bytes(1, n)),
					Finish: func(object.Written) (map[string]string, error) {
						if key == "new" {
							f.gone("b", "new") // nothing is visible yet
						}
						return nil, errMine
					}})
				if err != errMine { //nolint:errorlint // the contract: as it is
					f.Fatalf("error %v, expected that of Finish as it is", err)
				}
			}
		}
		f.gone("b", "new")
		f.holds(object.Ref{Bucket: "b", Key: "old"}, []byte("old"))
		same(f, len(f.versions("b")), 1, "versions")
	}},
	{"cancelled midway leave no trace", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		for _, size := range []int64{-1, 16 << 20} {
			ctx, cancel := context.WithCancel(f.ctx)
			given := 0
			body := funcReader(func(p []byte) (int, error) {
				given += len(p)
				if given > 1<<20 {
					cancel()
				}
				return len(p), nil
			})
			_, err := f.s.Put(ctx, object.Put{Bucket: "b", Key: "k", Size: size, Body: io.LimitReader(body, 16<<20)})
			f.fails(err, context.Canceled, "cancelled after 1 MiB")
			cancel()
			f.gone("b", "k")
		}
	}},
	{"nothing is visible before the end", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		for _, n := range []int{100, 1 << 20} {
			key := fmt.Sprint(n)
			looked := false
			body := funcReader(func([]byte) (int, error) {
				looked = true
				f.gone("b", key)
				return 0, io.EOF
			})
			_, err := f.s.Put(f.ctx, object.Put{Bucket: "b", Key: key, Size: int64(n),
				Body: io.MultiReader(bytes.NewReader(Bytes(1, n)), body)})
			f.ok(err, "put")
			same(f, looked, true, "the body was read to its end")
			f.holds(object.Ref{Bucket: "b", Key: key}, Bytes(1, n))
		}
	}},
}
