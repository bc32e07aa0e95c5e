// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/nebulaio/nebulaio/internal/object"
)

// gate is a body that says when it is first read, and waits before it ends.
type gate struct {
	data    *bytes.Reader
	begun   chan struct{}
	release chan struct{}
	once    sync.Once
}

func newGate(data []byte) *gate {
	return &gate{data: bytes.NewReader(data), begun: make(chan struct{}), release: make(chan struct{})}
}

func (g *gate) Read(p []byte) (int, error) {
	if g.data.Len() > 0 {
		return g.data.Read(p)
	}
	g.once.Do(func() { close(g.begun) })
	<-g.release
	return 0, io.EOF
}

var raceTests = []test{
	{"one of a hundred makes the object", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		for _, n := range []int{8, 20_000} {
			key := fmt.Sprint("k", n)
			var won atomic.Int64
			var winner atomic.Int64
			var wg sync.WaitGroup
			start := make(chan struct{})
			for g := range 100 {
				wg.Go(func() {
					<-start
					_, err := f.s.Put(f.ctx, object.Put{Bucket: "b", Key: key, Size: int64(n),
						Body: bytes.NewReader(Bytes(uint64(g), n)), Condition: object.Condition{IfNoneMatch: "*"}})
					switch {
					case err == nil:
						won.Add(1)
						winner.Store(int64(g))
					case !errors.Is(err, object.ErrPrecondition):
						f.Errorf("put: %v", err)
					}
				})
			}
			close(start)
			wg.Wait()
			same(f, won.Load(), int64(1), "winners")
			f.holds(object.Ref{Bucket: "b", Key: key}, Bytes(uint64(winner.Load()), n))
		}
	}},
	{"counting with If-Match loses nothing", func(f *fixture) {
		for _, v := range []object.Versioning{object.VersioningOff, object.VersioningEnabled} {
			b := "b" + string(v)
			f.bucket(b, v, object.ETagMD5)
			f.put(b, "n", []byte("0"))
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for done := 0; done < 10; {
						i, data, err := Read(f.ctx, f.s, object.Ref{Bucket: b, Key: "n"})
						if err != nil {
							f.Errorf("read: %v", err)
							return
						}
						n, err := strconv.Atoi(string(data))
						if err != nil {
							f.Error(err)
							return
						}
						next := []byte(strconv.Itoa(n + 1))
						_, err = f.s.Put(f.ctx, object.Put{Bucket: b, Key: "n", Size: int64(len(next)), Body: bytes.NewReader(next),
							Condition: object.Condition{IfMatch: i.ETag}})
						if err == nil {
							done++
						} else if !errors.Is(err, object.ErrPrecondition) {
							f.Errorf("put: %v", err)
							return
						}
					}
				})
			}
			wg.Wait()
			f.holds(object.Ref{Bucket: b, Key: "n"}, []byte("80"))
		}
	}},
	{"readers see one write whole", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		sizes := []int{10, 30_000, 5000, mib + 1}
		write := func(n int) error {
			_, err := f.s.Put(f.ctx, object.Put{Bucket: "b", Key: "k", Size: int64(sizes[n%4]),
				Body: bytes.NewReader(Bytes(uint64(n%4), sizes[n%4]))})
			return err
		}
		f.ok(write(0), "put")
		var wg, readers sync.WaitGroup
		stop := make(chan struct{})
		for range 3 {
			readers.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					i, data, err := Read(f.ctx, f.s, object.Ref{Bucket: "b", Key: "k"})
					if err != nil || MD5(data) != i.ETag {
						f.Errorf("read %s with ETag %s: %v", brief(data), i.ETag, err)
						return
					}
					p, err := f.s.List(f.ctx, object.List{Bucket: "b"})
					if err != nil || len(p.Objects) != 1 {
						f.Errorf("a key that is overwritten is listed %d times: %v", len(p.Objects), err)
						return
					}
				}
			})
		}
		for g := range 3 {
			wg.Go(func() {
				for n := range 10 {
					if err := write(g + n); err != nil {
						f.Errorf("put: %v", err)
					}
				}
			})
		}
		wg.Wait()
		close(stop)
		readers.Wait()
	}},
	{"parts at once", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		for _, size := range []int{100_001, 300} {
			id := f.upload()
			var wg sync.WaitGroup
			var want []byte
			numbers := []int{}
			for n := 1; n <= 16; n++ {
				numbers = append(numbers, n)
				data := Bytes(uint64(n), size)
				want = append(want, data...)
				for range 2 {
					wg.Go(func() {
						if _, err := f.s.PutPart(f.ctx, object.PutPart{Bucket: "b", Key: "k", Upload: id, Number: n, Size: int64(size),
							Body: bytes.NewReader(data)}); err != nil {
							f.Errorf("part %d: %v", n, err)
						}
					})
				}
			}
			wg.Wait()
			f.completes(id, numbers, want)
		}
	}},
	{"one part twice at once is one of them whole", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		for _, size := range []int{50, 200_000} {
			id := f.upload()
			f.part("b", "k", id, 1, Bytes(0, size))
			var wg sync.WaitGroup
			for g := range 10 {
				wg.Go(func() {
					if _, err := f.s.PutPart(f.ctx, object.PutPart{Bucket: "b", Key: "k", Upload: id, Number: 2, Size: int64(size),
						Body: bytes.NewReader(Bytes(uint64(g), size))}); err != nil {
						f.Errorf("part: %v", err)
					}
				})
			}
			wg.Wait()
			ps, _, err := f.s.ListParts(f.ctx, "b", "k", id, 1, 1)
			f.ok(err, "list parts")
			g := 0
			for g < 10 && MD5(Bytes(uint64(g), size)) != ps[0].ETag {
				g++
			}
			f.completes(id, []int{1, 2}, append(Bytes(0, size), Bytes(uint64(g), size)...))
		}
	}},
	{"complete while a part is in flight", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		for _, repeated := range []int{2, 3} {
			id := f.upload()
			one, two := Bytes(1, 100_000), Bytes(2, 100_000)
			f.part("b", "k", id, 1, one)
			f.part("b", "k", id, 2, two)
			g := newGate(Bytes(3, 100_000))
			late := make(chan error, 1)
			go func() {
				_, err := f.s.PutPart(f.ctx, object.PutPart{Bucket: "b", Key: "k", Upload: id, Number: repeated, Size: 100_000,
					Body: g})
				late <- err
			}()
			<-g.begun
			f.completes(id, []int{1, 2}, append(one, two...))
			close(g.release)
			f.fails(<-late, object.ErrNoSuchUpload, "a part of an upload that is complete")
			f.holds(object.Ref{Bucket: "b", Key: "k"}, append(Bytes(1, 100_000), two...))
		}
	}},
	{"abort while a part is in flight", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		for _, size := range []int{10, 100_000} {
			id := f.upload()
			g := newGate(Bytes(3, size))
			late := make(chan error, 1)
			go func() {
				_, err := f.s.PutPart(f.ctx, object.PutPart{Bucket: "b", Key: "k", Upload: id, Number: 1, Size: int64(size),
					Body: g})
				late <- err
			}()
			<-g.begun
			f.ok(f.s.AbortUpload(f.ctx, "b", "k", id), "abort")
			close(g.release)
			f.fails(<-late, object.ErrNoSuchUpload, "a part of an upload that is aborted")
		}
		same(f, len(f.dump()), 1, "lines: the bucket")
	}},
	{"bucket deleted under a put", func(f *fixture) {
		for _, again := range []bool{false, true} {
			for _, size := range []int{10, 100_000} {
				f.bucket("b", object.VersioningOff, object.ETagMD5)
				g := newGate(Bytes(3, size))
				late := make(chan error, 1)
				go func() {
					_, err := f.s.Put(f.ctx, object.Put{Bucket: "b", Key: "k", Size: int64(size), Body: g})
					late <- err
				}()
				<-g.begun
				f.ok(f.s.DeleteBucket(f.ctx, "b"), "delete bucket")
				if again {
					f.bucket("b", object.VersioningOff, object.ETagMD5)
				}
				close(g.release)
				f.fails(<-late, object.ErrNoSuchBucket, "a put into a bucket that was deleted")
				if again {
					f.gone("b", "k")
					f.ok(f.s.DeleteBucket(f.ctx, "b"), "delete bucket")
				}
			}
		}
	}},
	{"bucket deletion against puts", func(f *fixture) {
		for n := range 20 {
			f.bucket("b", object.VersioningOff, object.ETagMD5)
			var wg sync.WaitGroup
			var put, deleted error
			wg.Go(func() {
				_, put = f.s.Put(f.ctx, object.Put{Bucket: "b", Key: "k", Size: 10, Body: bytes.NewReader(Bytes(uint64(n), 10))})
			})
			wg.Go(func() { deleted = f.s.DeleteBucket(f.ctx, "b") })
			wg.Wait()
			switch {
			case put == nil && errors.Is(deleted, object.ErrBucketNotEmpty):
				f.holds(object.Ref{Bucket: "b", Key: "k"}, Bytes(uint64(n), 10))
				f.remove("b", "k", "")
				f.ok(f.s.DeleteBucket(f.ctx, "b"), "delete bucket")
			case deleted == nil && errors.Is(put, object.ErrNoSuchBucket):
			default:
				f.Fatalf("put: %v, delete bucket: %v", put, deleted)
			}
		}
	}},
	{"one of several completions wins", func(f *fixture) {
		f.bucket("b", object.VersioningEnabled, object.ETagMD5)
		for _, size := range []int{10, 100_000} {
			id := f.upload()
			f.part("b", "k", id, 1, Bytes(1, size))
			var won atomic.Int64
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					_, err := f.s.CompleteUpload(f.ctx, object.Complete{Bucket: "b", Key: "k", Upload: id,
						Parts: []object.CompletedPart{{Number: 1}}})
					if err == nil {
						won.Add(1)
					} else if !errors.Is(err, object.ErrNoSuchUpload) {
						f.Errorf("complete: %v", err)
					}
				})
			}
			wg.Wait()
			same(f, won.Load(), int64(1), "completions")
			f.holds(object.Ref{Bucket: "b", Key: "k"}, Bytes(1, size))
		}
		same(f, len(f.versions("b")), 2, "versions")
	}},
	{"everything at once on few keys", func(f *fixture) {
		f.bucket("b", object.VersioningEnabled, object.ETagMD5)
		var wg sync.WaitGroup
		for g := range 6 {
			wg.Go(func() {
				for n := range 25 {
					key := strconv.Itoa((g*7 + n) % 3)
					ref := object.Ref{Bucket: "b", Key: key}
					size := []int{10, 40_000}[n%2]
					_, err := f.s.Put(f.ctx, object.Put{Bucket: "b", Key: key, Size: int64(size),
						Body: bytes.NewReader(Bytes(uint64(n), size))})
					if err != nil {
						f.Errorf("put: %v", err)
					}
					if i, err := f.s.Stat(f.ctx, ref); err == nil && n%3 == 0 {
						if _, err := f.s.Delete(f.ctx, object.Deletion{Ref: object.Ref{Bucket: "b", Key: key,
							Version: i.Version}}); err != nil {
							f.Errorf("delete version: %v", err)
						}
					}
					if _, err := f.s.Copy(f.ctx, object.Copy{From: ref, Bucket: "b", Key: strconv.Itoa(n % 3)}); err != nil &&
						!errors.Is(err, object.ErrNoSuchKey) {
						f.Errorf("copy: %v", err)
					}
					if n%4 == 0 {
						if _, err := f.s.Delete(f.ctx, object.Deletion{Ref: ref}); err != nil {
							f.Errorf("delete: %v", err)
						}
					}
				}
			})
		}
		wg.Wait()
		f.dump() // which proves that listing, versions and content agree
	}},
}
