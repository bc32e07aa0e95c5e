// SPDX-License-Identifier: Apache-2.0

package nebulaio_test

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio"
)

// goErrors checks that errors.Is finds Go's own errors when a call on an object fails, through the door and over HTTP.
// A program that handles fs.ErrNotExist for files then handles it for keys too. TestObjects calls goErrors, because a
// test process starts only one server.
func goErrors(t *testing.T, ways map[string]*nebulaio.Client,
	client func(*testing.T, func(*nebulaio.ClientOptions)) *nebulaio.Client, sys *nebulaio.System) {
	mem, err := sys.Alloc(t.Context(), "host", 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Free()
	read := func(c *nebulaio.Client, ctx context.Context, bucket, key string) error {
		m, err := c.StartRead(ctx, nebulaio.ObjectRead{Bucket: bucket, Key: key, Size: -1, Dst: mem.Ptr(),
			DstSize: mem.Size(), Device: "host"})
		if err != nil {
			return err
		}
		return m.Wait()
	}
	write := func(c *nebulaio.Client, bucket, key, ifNoneMatch string) error {
		m, err := c.StartWrite(t.Context(), nebulaio.ObjectWrite{Bucket: bucket, Key: key, Src: mem.Ptr(), Size: 10,
			Device: "host", IfNoneMatch: ifNoneMatch})
		if err != nil {
			return err
		}
		return m.Wait()
	}
	expect := func(what string, err, want error) {
		t.Helper()
		for _, e := range []error{fs.ErrNotExist, fs.ErrPermission, fs.ErrExist, context.Canceled, context.DeadlineExceeded} {
			if errors.Is(err, e) != (e == want) {
				t.Errorf("%s: errors.Is(%v, %v) is %v", what, err, e, e != want)
			}
		}
	}
	for by, c := range ways {
		expect(by+": read of no key", read(c, t.Context(), "box", "errors/none"), fs.ErrNotExist)
		expect(by+": read of no bucket", read(c, t.Context(), "no-such-box", "k"), fs.ErrNotExist)
		_, err := c.Stat(t.Context(), "box", "errors/none", "")
		expect(by+": stat of no key", err, fs.ErrNotExist)
		_, err = c.List(t.Context(), nebulaio.ObjectList{Bucket: "no-such-box"})
		expect(by+": list of no bucket", err, fs.ErrNotExist)
		expect(by+": write to no bucket", write(c, "no-such-box", "k", ""), fs.ErrNotExist)
		_, err = c.OpenSource(t.Context(), "box", "errors/none.safetensors", nebulaio.SourceOptions{Device: "host"})
		expect(by+": open of no model", err, fs.ErrNotExist)

		expect(by+": first write of a new key", write(c, "box", "errors/"+by, "*"), nil)
		expect(by+": write of a key that exists", write(c, "box", "errors/"+by, "*"), fs.ErrExist)

		expect(by+": write of a key to delete", write(c, "box", "errors/gone-"+by, ""), nil)
		for range 2 { // a missing object is no error
			expect(by+": delete", c.Delete(t.Context(), "box", "errors/gone-"+by), nil)
			_, err = c.Stat(t.Context(), "box", "errors/gone-"+by, "")
			expect(by+": stat of a deleted key", err, fs.ErrNotExist)
		}
		expect(by+": delete in no bucket", c.Delete(t.Context(), "no-such-box", "k"), fs.ErrNotExist)

		gone, cancel := context.WithCancel(t.Context())
		cancel()
		expect(by+": cancelled read", read(c, gone, "box", "errors/"+by), context.Canceled)
		late, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
		expect(by+": read past its deadline", read(c, late, "box", "errors/"+by), context.DeadlineExceeded)
		cancel()
	}
	for by, door := range map[string]string{"door": "require", "http": "off"} {
		c := client(t, func(o *nebulaio.ClientOptions) { o.Door, o.SecretKey = door, "another secret" })
		expect(by+": read with a wrong secret", read(c, t.Context(), "box", "errors/"+by), fs.ErrPermission)
		_, err := c.Stat(t.Context(), "box", "errors/"+by, "")
		expect(by+": stat with a wrong secret", err, fs.ErrPermission)
	}
	f, err := ways["door"].CreateDraft(t.Context(), "box", "errors/door", 10,
		nebulaio.DraftOptions{Device: "host", IfNoneMatch: "*"})
	if err == nil { // the condition may be looked at when the object is committed
		_, err = f.Commit(t.Context(), 0)
	}
	expect("file of a key that exists", err, fs.ErrExist)
	_, err = nebulaio.Open(t.Context(), "s3://box/errors/none", nebulaio.OpenOptions{Client: ways["http"]})
	expect("open of no object", err, fs.ErrNotExist)
}

// TestCancelledWithACause ends a context with an error of the caller's own, which is found beside the kind.
func TestCancelledWithACause(t *testing.T) {
	sys := hostSystem(t)
	mine := errors.New("the caller's own reason")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(mine)
	_, save := sys.Save(ctx, filepath.Join(t.TempDir(), "m"), nil, nebulaio.SaveOptions{})
	_, create := nebulaio.Create(ctx, filepath.Join(t.TempDir(), "f"), 1, nebulaio.CreateOptions{System: sys})
	for what, err := range map[string]error{"save": save, "create": create} {
		if !errors.Is(err, nebulaio.ErrCancelled) || !errors.Is(err, context.Canceled) || !errors.Is(err, mine) {
			t.Errorf("%s: %v, kind %v", what, err, nebulaio.KindOf(err))
		}
	}
}
