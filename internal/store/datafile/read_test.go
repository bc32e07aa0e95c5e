// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// reader opens a file that write has made.
func reader(t testing.TB, f *Files, id ID, out Written) *Reader {
	t.Helper()
	r, err := f.OpenRead(id, out.Size, func() ([]uint64, error) { return out.Sums, nil })
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ways are how a body leaves: each returns what arrived.
var ways = map[string]func(t testing.TB, b object.Body) ([]byte, error){
	"read": func(t testing.TB, b object.Body) ([]byte, error) {
		var out bytes.Buffer
		_, err := io.CopyBuffer(struct{ io.Writer }{&out}, struct{ io.Reader }{b}, make([]byte, 70_001))
		return out.Bytes(), err
	},
	"write": func(t testing.TB, b object.Body) ([]byte, error) {
		var out bytes.Buffer
		n, err := b.WriteTo(&out)
		if n != int64(out.Len()) {
			t.Errorf("%d bytes were written, %d said", out.Len(), n)
		}
		return out.Bytes(), err
	},
	"buffered": func(t testing.TB, b object.Body) ([]byte, error) {
		var out bytes.Buffer
		w := bufio.NewWriter(struct{ io.Writer }{&out})
		_, err := b.WriteTo(w)
		err = errors.Join(err, w.Flush())
		return out.Bytes(), err
	},
	"socket": func(t testing.TB, b object.Body) ([]byte, error) {
		return through(t, func(c net.Conn) error { _, err := b.WriteTo(c); return err })
	},
	"buffered socket": func(t testing.TB, b object.Body) ([]byte, error) {
		const head = "HTTP/1.1 200 OK\r\n\r\n"
		got, err := through(t, func(c net.Conn) error {
			w := bufio.NewWriterSize(c, 4096)
			io.WriteString(w, head)
			_, err := b.WriteTo(w)
			return errors.Join(err, w.Flush())
		})
		rest, ok := bytes.CutPrefix(got, []byte(head))
		if !ok {
			t.Error("the header did not come first")
		}
		return rest, err
	},
}

// through returns what arrives at the other end of a TCP connection.
func through(t testing.TB, send func(net.Conn) error) ([]byte, error) {
	t.Helper()
	server, client := pipe(t)
	type result struct {
		b   []byte
		err error
	}
	got := make(chan result)
	go func() {
		b, err := io.ReadAll(client)
		got <- result{b, err}
	}()
	err := send(server)
	server.Close()
	r := <-got
	if r.err != nil {
		t.Error(r.err)
	}
	return r.b, err
}

func TestEveryRangeComesOutEveryWay(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		data := noise(3*Block+4321, 1)
		rng := rand.New(rand.NewPCG(1, 1))
		for _, policy := range []Policy{VerifyFirst, VerifyAlways, VerifyNever} {
			o := o
			o.Verify = policy
			f := open(t, o)
			out := write(t, f, 1, data)
			for name, way := range ways {
				for range 6 {
					off := rng.Int64N(out.Size)
					n := rng.Int64N(out.Size - off + 1)
					if rng.IntN(3) == 0 {
						n = min(n, 5000)
					}
					r := reader(t, f, 1, out)
					b, err := r.Section(off, n)
					if err != nil {
						t.Fatal(err)
					}
					r.Close() // the body stays
					if b.Len() != n {
						t.Errorf("length %d, expected %d", b.Len(), n)
					}
					got, err := way(t, b)
					if err != nil || !bytes.Equal(got, data[off:off+n]) || b.Len() != 0 {
						t.Errorf("%s, %s, [%d, +%d): %d bytes, %v, %d left", policy, name, off, n, len(got), err, b.Len())
					}
					b.Close()
				}
			}
			if err := f.Flush(); err != nil {
				t.Fatal(err)
			}
			if _, err := f.Remove(1); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// The bytes of a block that was compared go by sendfile where the writer is a socket, also behind a bufio.Writer, and
// not else.
func TestSocketsGetSendfile(t *testing.T) {
	f := open(t, Options{FS: vfs.Default, Dir: t.TempDir()})
	out := write(t, f, 1, noise(2*Block, 1))
	for name, way := range ways {
		r := reader(t, f, 1, out)
		b, err := r.Section(1, out.Size-1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := way(t, b); err != nil {
			t.Error(err)
		}
		want := name != "socket" && name != "buffered socket" && name != "read"
		if b.(*body).plain != want {
			t.Errorf("%s: plain is %v, expected %v", name, b.(*body).plain, want)
		}
		b.Close()
		r.Close()
	}
}

// All bodies of a file share one descriptor; none moves another one's place.
func TestManyBodiesOfOneFile(t *testing.T) {
	for _, policy := range []Policy{VerifyFirst, VerifyAlways} {
		f := open(t, Options{FS: vfs.Default, Dir: t.TempDir(), Verify: policy})
		data := noise(4*Block+99, 1)
		out := write(t, f, 1, data)
		var all sync.WaitGroup
		for k := range 8 {
			all.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(k), 2))
				for range 4 {
					off := rng.Int64N(out.Size)
					n := rng.Int64N(out.Size - off)
					r := reader(t, f, 1, out)
					b, err := r.Section(off, n)
					if err != nil {
						t.Error(err)
						return
					}
					got, err := ways["buffered socket"](t, b)
					if err != nil || !bytes.Equal(got, data[off:off+n]) {
						t.Errorf("[%d, +%d): %d bytes, %v", off, n, len(got), err)
					}
					b.Close()
					r.Close()
				}
			})
		}
		all.Wait()
		if len(f.cache.entries) != 1 || f.cache.idle.Len() != 1 {
			t.Errorf("%d files are open, %d idle", len(f.cache.entries), f.cache.idle.Len())
		}
	}
}

// A reader that stops is cut off by the connection's deadline, and holds nothing until then.
func TestASlowReaderIsCutOff(t *testing.T) {
	f := open(t, Options{FS: vfs.Default, Dir: t.TempDir(), Verify: VerifyAlways})
	out := write(t, f, 1, noise(32*Block, 1))
	r := reader(t, f, 1, out)
	defer r.Close()
	b, err := r.Section(0, out.Size)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	server, client := pipe(t)
	go func() {
		if _, err := client.Read(make([]byte, 1)); err != nil {
			t.Error(err)
		}
		server.SetWriteDeadline(time.Now()) // it reads no more
	}()
	n, err := b.WriteTo(bufio.NewWriter(server))
	if !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 || n != out.Size-b.Len() {
		t.Errorf("%d bytes, %d left, %v", n, b.Len(), err)
	}
	if len(f.checks) != 0 || f.buffers.users.Load() != 0 {
		t.Error("something is held")
	}
}

func TestAClientThatVanishesEndsTheBody(t *testing.T) {
	f := open(t, Options{FS: vfs.Default, Dir: t.TempDir()})
	out := write(t, f, 1, noise(32*Block, 1))
	r := reader(t, f, 1, out)
	defer r.Close()
	r.OnDamage = func(d *Damage) { t.Errorf("taken for damage: %v", d) }
	b, err := r.Section(0, out.Size)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	server, client := pipe(t)
	client.SetLinger(0)
	client.Close()
	if _, err := b.WriteTo(bufio.NewWriter(server)); err == nil || errors.Is(err, object.ErrDamaged) {
		t.Errorf("got %v", err)
	}
}

// flip changes one byte of a settled file behind the store's back.
func flip(t testing.TB, f *Files, id ID, off int64) {
	t.Helper()
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(f.Path(id), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var one [1]byte
	if _, err := file.ReadAt(one[:], off); err != nil {
		t.Fatal(err)
	}
	one[0] ^= 0x10
	if _, err := file.WriteAt(one[:], off); err != nil {
		t.Fatal(err)
	}
}

// What comes out before the damage is right, nothing of the damaged block comes out, and it is told once.
func TestAFlippedByteIsFound(t *testing.T) {
	data := noise(4*Block+10, 1)
	for _, policy := range []Policy{VerifyFirst, VerifyAlways} {
		for name, way := range ways {
			t.Run(fmt.Sprintf("%s/%s", policy, name), func(t *testing.T) {
				f := open(t, Options{FS: vfs.Default, Dir: t.TempDir(), Verify: policy})
				out := write(t, f, 1, data)
				flip(t, f, 1, 2*Block+77)
				var found []*Damage
				r := reader(t, f, 1, out)
				defer r.Close()
				r.OnDamage = func(d *Damage) { found = append(found, d) }
				b, err := r.Section(5, out.Size-5)
				if err != nil {
					t.Fatal(err)
				}
				defer b.Close()
				got, err := way(t, b)
				if !errors.Is(err, object.ErrDamaged) || !errs.Is(err, errs.Corrupt) || !bytes.Equal(got, data[5:2*Block]) {
					t.Errorf("%d bytes came out, %v", len(got), err)
				}
				if _, err := b.Read(make([]byte, 1)); !errors.Is(err, object.ErrDamaged) {
					t.Errorf("the body goes on: %v", err)
				}
				if len(found) != 1 || found[0].Off != 2*Block || found[0].N != Block || found[0].What != "checksum" ||
					found[0].File != f.Path(1) || found[0].ID != 1 {
					t.Errorf("told: %v", found)
				}
				// The rest of the file is served.
				rest, err := r.Section(3*Block, out.Size-3*Block)
				if err != nil {
					t.Fatal(err)
				}
				defer rest.Close()
				if got, err := way(t, rest); err != nil || !bytes.Equal(got, data[3*Block:]) {
					t.Errorf("the rest: %d bytes, %v", len(got), err)
				}
			})
		}
	}
}

// After a block was compared, "first" does not look again until the file is opened anew; "always" does.
func TestHowOftenIsCompared(t *testing.T) {
	for policy, want := range map[Policy]bool{VerifyFirst: false, VerifyAlways: true, VerifyNever: false} {
		f := open(t, Options{FS: vfs.Default, Dir: t.TempDir(), Verify: policy})
		out := write(t, f, 1, noise(Block, 1))
		if _, err := read(t, f, 1, out, 0, out.Size); err != nil {
			t.Fatal(err)
		}
		flip(t, f, 1, 9)
		if _, err := read(t, f, 1, out, 0, out.Size); errors.Is(err, object.ErrDamaged) != want {
			t.Errorf("%s: %v", policy, err)
		}
		f.cache.forget(1)
		if _, err := read(t, f, 1, out, 0, out.Size); errors.Is(err, object.ErrDamaged) != (policy != VerifyNever) {
			t.Errorf("%s, opened anew: %v", policy, err)
		}
		// Whoever makes new sums of the bytes sees the damage whatever the policy.
		f.cache.forget(1)
		r := reader(t, f, 1, out)
		b, err := r.Strict(0, out.Size)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(b); !errors.Is(err, object.ErrDamaged) {
			t.Errorf("%s, strict: %v", policy, err)
		}
		b.Close()
		r.Close()
		if found, err := f.Scrub(context.Background(), 1, out.Size, out.Sums, nil); err != nil || len(found) != 1 {
			t.Errorf("%s, scrub: %v, %v", policy, found, err)
		}
	}
}

// "always" compares a block once for a body that reads it in small pieces, and not once for each piece.
func TestSmallReadsCompareABlockOnce(t *testing.T) {
	reads := 0
	f := open(t, Options{Dir: "store", Verify: VerifyAlways,
		FS: errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileReadAt {
				reads++
			}
			return nil
		}))})
	out := write(t, f, 1, noise(2*Block, 1))
	r := reader(t, f, 1, out)
	defer r.Close()
	b, err := r.Section(0, out.Size)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	pieces := 0
	for p := make([]byte, 64<<10); ; pieces++ {
		if _, err := b.Read(p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if want := 32 + 2*Block/checkPiece; pieces != 32 || reads != want {
		t.Errorf("%d reads of the file for %d of the body, expected %d", reads, pieces, want)
	}
}

func TestFilesThatAreMissingOrShortAreDamage(t *testing.T) {
	f := open(t, Options{FS: vfs.Default, Dir: t.TempDir()})
	out := write(t, f, 1, noise(2*Block, 1))
	sums := func() ([]uint64, error) { return out.Sums, nil }
	var d *Damage
	if _, err := f.OpenRead(2, out.Size, sums); !errors.As(err, &d) || !errors.Is(err, object.ErrDamaged) ||
		d.What != "missing" || d.ID != 2 {
		t.Errorf("missing: %v", err)
	}
	r := reader(t, f, 1, out)
	defer r.Close()
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(f.Path(1), Block+5); err != nil {
		t.Fatal(err)
	}
	for name, way := range ways {
		f.cache.mu.Lock()
		for i := range f.cache.entries[1].seen {
			f.cache.entries[1].seen[i].Store(0)
		}
		f.cache.mu.Unlock()
		b, err := r.Section(0, out.Size)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := way(t, b); !errors.As(err, &d) || d.What != "short" || d.Off != Block+5 || len(got) != Block {
			t.Errorf("%s of a file that was cut while open: %d bytes, %v", name, len(got), err)
		}
		b.Close()
	}
	f.cache.forget(1)
	if _, err := f.OpenRead(1, out.Size, sums); !errors.As(err, &d) || d.What != "short" || d.Off != Block+5 ||
		d.N != Block-5 {
		t.Errorf("short: %v", err)
	}
	if found, err := f.Scrub(context.Background(), 1, out.Size, out.Sums, nil); err != nil || len(found) != 1 ||
		found[0].What != "short" {
		t.Errorf("scrub: %v, %v", found, err)
	}
	if found, err := f.Scrub(context.Background(), 2, out.Size, out.Sums, nil); err != nil || len(found) != 1 ||
		found[0].What != "missing" {
		t.Errorf("scrub: %v, %v", found, err)
	}
	if err := os.Truncate(f.Path(1), 2*Block); err != nil {
		t.Fatal(err)
	}
	if r, err := f.OpenRead(1, out.Size, sums); err != nil {
		t.Errorf("long again: %v", err)
	} else {
		r.Close()
	}
}

// A file that is cut while the kernel sends it is damage too, and no endless loop.
func TestAFileThatIsCutWhileItIsSent(t *testing.T) {
	f := open(t, Options{FS: vfs.Default, Dir: t.TempDir(), Verify: VerifyNever})
	out := write(t, f, 1, noise(Block, 1))
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	r := reader(t, f, 1, out)
	defer r.Close()
	if err := os.Truncate(f.Path(1), 1000); err != nil {
		t.Fatal(err)
	}
	for name, way := range ways {
		b, err := r.Section(0, out.Size)
		if err != nil {
			t.Fatal(err)
		}
		var d *Damage
		if _, err := way(t, b); !errors.As(err, &d) || d.What != "short" {
			t.Errorf("%s: %v", name, err)
		}
		b.Close()
	}
}

// What the medium cannot read is damage; what the process cannot do is not.
func TestReadErrors(t *testing.T) {
	for cause, damaged := range map[error]bool{unix.EIO: true, unix.EBADMSG: true, unix.EMFILE: false,
		unix.ENOMEM: false} {
		for _, kind := range []errorfs.OpKind{errorfs.OpOpen, errorfs.OpFileReadAt} {
			var inject errorfs.Toggle
			inject.Injector = errorfs.InjectorFunc(func(op errorfs.Op) error {
				if op.Kind == kind {
					return cause
				}
				return nil
			})
			f := open(t, Options{FS: errorfs.Wrap(vfs.NewMem(), &inject), Dir: "store"})
			out := write(t, f, 1, noise(3*Block, 1))
			inject.On()
			_, err := read(t, f, 1, out, 0, out.Size)
			if !errors.Is(err, cause) || errors.Is(err, object.ErrDamaged) != damaged {
				t.Errorf("%v: %v", cause, err)
			}
			inject.Off()
			if _, err := read(t, f, 1, out, 0, out.Size); err != nil {
				t.Errorf("after %v: %v", cause, err)
			}
		}
	}
}

func TestSumsThatDoNotFitAreDamage(t *testing.T) {
	f := open(t, Options{FS: vfs.NewMem(), Dir: "store"})
	out := write(t, f, 1, noise(3*Block, 1))
	out.Sums = out.Sums[:2]
	if _, err := read(t, f, 1, out, 0, out.Size); !errors.Is(err, object.ErrDamaged) {
		t.Errorf("got %v", err)
	}
	f.cache.forget(1)
	gone := errors.New("the metadata is gone")
	r, err := f.OpenRead(1, out.Size, func() ([]uint64, error) { return nil, gone })
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := r.Section(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := b.Read(make([]byte, 1)); !errors.Is(err, gone) || errors.Is(err, object.ErrDamaged) {
		t.Errorf("got %v", err)
	}
}

// Sums are asked for once while a file stays open, and not kept longer than needed.
func TestSumsAreAskedForOnce(t *testing.T) {
	f := open(t, Options{FS: vfs.NewMem(), Dir: "store"})
	out := write(t, f, 1, noise(3*Block, 1))
	asked := 0
	for range 3 {
		r, err := f.OpenRead(1, out.Size, func() ([]uint64, error) { asked++; return out.Sums, nil })
		if err != nil {
			t.Fatal(err)
		}
		b, err := r.Section(0, out.Size)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, b); err != nil {
			t.Fatal(err)
		}
		b.Close()
		r.Close()
	}
	if asked != 1 || f.cache.entries[1].sums != nil {
		t.Errorf("asked %d times, kept %d", asked, len(f.cache.entries[1].sums))
	}
}

func TestRangesHaveToLieWithin(t *testing.T) {
	f := open(t, Options{FS: vfs.NewMem(), Dir: "store"})
	out := write(t, f, 1, noise(100, 1))
	r := reader(t, f, 1, out)
	defer r.Close()
	for _, c := range [][2]int64{{-1, 1}, {0, 101}, {101, 0}, {100, 1}, {0, -1}, {1 << 62, 1 << 62}} {
		if _, err := r.Section(c[0], c[1]); !errors.Is(err, object.ErrInvalidRange) {
			t.Errorf("%v: %v", c, err)
		}
	}
	b, err := r.Section(100, 0)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := b.Read(make([]byte, 5)); n != 0 || err != io.EOF {
		t.Errorf("nothing: %d, %v", n, err)
	}
	b.Close()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if _, err := b.Read(make([]byte, 5)); !errs.Is(err, errs.Closed) {
		t.Errorf("after the end: %v", err)
	}
	if _, err := f.OpenRead(1, -1, nil); !errors.Is(err, object.ErrTooLarge) {
		t.Errorf("a negative size: %v", err)
	}
}

// Files stay open while there is room, and no longer; no descriptor is lost.
func TestTheCacheOfOpenFiles(t *testing.T) {
	before := descriptors(t)
	f, err := Open(Options{FS: vfs.Default, Dir: t.TempDir(), OpenFiles: 3})
	if err != nil {
		t.Fatal(err)
	}
	base := descriptors(t)
	var outs []Written
	for i := range 10 {
		outs = append(outs, write(t, f, ID(i), noise(1000+i, byte(i))))
	}
	if err := f.Flush(); err != nil { // settling opens directories
		t.Fatal(err)
	}
	var open []*Reader
	for i := range 10 {
		open = append(open, reader(t, f, ID(i), outs[i]))
	}
	if n := descriptors(t) - base; n != 10 {
		t.Errorf("%d descriptors for 10 readers", n)
	}
	for _, r := range open {
		r.Close()
		if err := r.Close(); !errs.Is(err, errs.Closed) {
			t.Errorf("closed twice: %v", err)
		}
	}
	if n := descriptors(t) - base; n != 3 || f.cache.idle.Len() != 3 || len(f.cache.entries) != 3 {
		t.Errorf("%d descriptors, %d idle, %d known; expected 3", n, f.cache.idle.Len(), len(f.cache.entries))
	}
	// The one used last stays longest.
	reader(t, f, 7, outs[7]).Close()
	reader(t, f, 1, outs[1]).Close()
	if f.cache.entries[7] == nil || f.cache.entries[8] != nil {
		t.Error("the wrong file was closed")
	}
	var all sync.WaitGroup
	for k := range 8 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(k), 7))
			for range 300 {
				i := rng.IntN(10)
				got, err := read(t, f, ID(i), outs[i], 0, outs[i].Size)
				if err != nil || !bytes.Equal(got, noise(1000+i, byte(i))) {
					t.Errorf("file %d: %d bytes, %v", i, len(got), err)
				}
			}
		})
	}
	all.Wait()
	// A reader that outlives the store keeps its bytes.
	last := reader(t, f, 2, outs[2])
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := last.Section(0, outs[2].Size)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(b); err != nil || !bytes.Equal(got, noise(1002, 2)) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	b.Close()
	last.Close()
	if n := descriptors(t); n != before {
		t.Errorf("%d descriptors, there were %d", n, before)
	}
}
