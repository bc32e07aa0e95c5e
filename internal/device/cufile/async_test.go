// SPDX-License-Identifier: Apache-2.0

package cufile_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/cufile"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/hostmem"
)

func outside(t *testing.T) []byte {
	t.Helper()
	r, err := hostmem.Map(4096)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Unmap() })
	return r.Bytes()
}

func TestStreams(t *testing.T) {
	r := newRig(t, fakegpu.CuFileOptions{})
	f, want := content(t, 10_000)
	d := r.open(t, f).(*cufile.File)
	mem := outside(t)
	const stream = 7
	if err := r.StreamRegister(stream, cufile.StreamFixedSize|cufile.StreamPageAligned); err != nil ||
		r.fake.Count("streams") != 1 {
		t.Fatal(err)
	}
	op, err := cufile.NewStreamOp(mem, 5000, 4096, 100)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.ReadAsync(r.buf.Ptr(), op, stream); err != nil {
		t.Fatal(err)
	}
	if n, err := d.Moved(op); n != 5000 || err != nil ||
		!bytes.Equal(r.gpu.Bytes(r.buf.Ptr()+100, 5000), want[4096:9096]) {
		t.Errorf("%d, %v, or other bytes", n, err)
	}
	*op = cufile.StreamOp{Size: 10}
	if err := d.WriteAsync(r.buf.Ptr()+100, op, stream); err != nil {
		t.Fatal(err)
	}
	if now := make([]byte, 10); true {
		if _, err := f.ReadAt(now, 0); err != nil || !bytes.Equal(now, want[4096:4106]) {
			t.Errorf("written: %v, %v", now, err)
		}
	}
	r.fake.FailInErrno("cuFileRead", 1, 5044)
	if err := d.ReadAsync(r.buf.Ptr(), op, stream); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Moved(op); cufile.Code(err) != 5044 {
		t.Errorf("an operation that failed: %v", err)
	}
	r.fake.Fail("cuFileReadAsync", 0, 1, 5038)
	if err := d.ReadAsync(r.buf.Ptr(), op, stream); cufile.Code(err) != 5038 {
		t.Errorf("%v", err)
	}
	for _, bad := range []func() (*cufile.StreamOp, error){
		func() (*cufile.StreamOp, error) { return cufile.NewStreamOp(mem[:31], 1, 0, 0) },
		func() (*cufile.StreamOp, error) { return cufile.NewStreamOp(mem[4:], 1, 0, 0) },
		func() (*cufile.StreamOp, error) { return cufile.NewStreamOp(mem, 1, -1, 0) },
	} {
		if _, err := bad(); !errs.Is(err, errs.Invalid) {
			t.Errorf("%v", err)
		}
	}
	if err := errors.Join(r.StreamDeregister(stream), d.Close()); err != nil {
		t.Error(err)
	}
	if err := d.ReadAsync(r.buf.Ptr(), op, stream); !errs.Is(err, errs.Closed) {
		t.Errorf("%v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := r.StreamRegister(stream, 0); !errs.Is(err, errs.Closed) {
		t.Errorf("%v", err)
	}
	r.fake.CheckFreed()
}

func TestBatches(t *testing.T) {
	r := newRig(t, fakegpu.CuFileOptions{})
	f, want := content(t, 64<<10)
	d := r.open(t, f).(*cufile.File)
	b, err := r.NewBatch(8)
	if err != nil {
		t.Fatal(err)
	}
	var ops []cufile.BatchOp
	for i := range int64(8) {
		ops = append(ops, cufile.BatchOp{File: d, Base: r.buf.Ptr(), BufOff: (7 - i) * 4096, N: 4096, FileOff: i * 4096,
			Cookie: 1<<40 + uint64(i)})
	}
	if err := b.Submit(ops); err != nil {
		t.Fatal(err)
	}
	events, err := b.Wait(8, time.Second)
	if err != nil || len(events) != 8 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	for i, e := range events {
		if n, err := e.Bytes(); n != 4096 || err != nil || e.Cookie != 1<<40+uint64(i) {
			t.Errorf("event %d: %+v, %v", i, e, err)
		}
	}
	for i := range int64(8) {
		if !bytes.Equal(r.gpu.Bytes(r.buf.Ptr()+device.Ptr((7-i)*4096), 4096), want[i*4096:(i+1)*4096]) {
			t.Errorf("block %d differs", i)
		}
	}
	if err := b.Submit(ops[:3]); err != nil {
		t.Fatal(err)
	}
	if err := b.Submit(ops[:6]); !errs.Is(err, errs.Invalid) ||
		!strings.Contains(err.Error(), "6 requests while 3 are under way") {
		t.Errorf("more than there is room for: %v", err)
	}
	if events, err := b.Wait(3, 0); err != nil || len(events) != 3 {
		t.Errorf("%d events, %v", len(events), err)
	}
	r.fake.Fail("cuFileRead", 0, 1, 5044)
	if err := b.Submit(ops[:1]); err != nil {
		t.Fatal(err)
	}
	if events, err := b.Wait(1, 0); err != nil || len(events) != 1 {
		t.Errorf("%v, %v", events, err)
	} else if _, err := events[0].Bytes(); cufile.Code(err) != 5044 || events[0].Status != cufile.BatchFailed {
		t.Errorf("a request that failed: %+v, %v", events[0], err)
	}
	if _, err := (cufile.BatchEvent{Status: cufile.BatchCancelled}).Bytes(); !errs.Is(err, errs.IO) {
		t.Errorf("a request that was cancelled: %v", err)
	}
	for _, bad := range [][]cufile.BatchOp{append(ops, ops[0]), {{}}, {{File: d, Base: 1, N: 1, Opcode: 9}},
		{{File: d, Base: 1, N: -1}}} {
		if err := b.Submit(bad); !errs.Is(err, errs.Invalid) {
			t.Errorf("%v", err)
		}
	}
	for fn, call := range map[string]func() error{
		"cuFileBatchIOSubmit":    func() error { return b.Submit(ops[:1]) },
		"cuFileBatchIOGetStatus": func() error { _, err := b.Wait(0, 0); return err },
		"cuFileBatchIOCancel":    b.Cancel,
		"cuFileBatchIOSetUp":     func() error { _, err := r.NewBatch(1); return err },
	} {
		r.fake.Fail(fn, 0, 1, 5042)
		if err := call(); cufile.Code(err) != 5042 || !strings.Contains(err.Error(), fn) {
			t.Errorf("%s: %v", fn, err)
		}
	}
	if _, err := r.NewBatch(0); !errs.Is(err, errs.Invalid) {
		t.Errorf("%v", err)
	}
	if err := errors.Join(b.Cancel(), d.Close()); err != nil {
		t.Error(err)
	}
	if err := b.Submit(ops[:1]); !errs.Is(err, errs.Closed) {
		t.Errorf("a closed file: %v", err)
	}
	if err := errors.Join(b.Close(), b.Close()); err != nil {
		t.Error(err)
	}
	if _, err := b.Wait(0, 0); !errs.Is(err, errs.Closed) {
		t.Errorf("%v", err)
	}
	left, err := r.NewBatch(2)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.Close(), left.Close()); err != nil {
		t.Error(err)
	}
	r.fake.CheckFreed()
}

func TestOlderLibrariesHaveNeither(t *testing.T) {
	r := newRig(t, fakegpu.CuFileOptions{Without: []string{"cuFileReadAsync", "cuFileStreamRegister",
		"cuFileBatchIOCancel"}})
	f, _ := content(t, 10)
	d := r.open(t, f).(*cufile.File)
	op, err := cufile.NewStreamOp(outside(t), 1, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, e := r.NewBatch(1)
	for want, err := range map[string]error{"cuFileReadAsync": d.ReadAsync(r.buf.Ptr(), op, 1),
		"cuFileStreamRegister": r.StreamRegister(1, 0), "cuFileBatchIOCancel": e} {
		if !errs.Is(err, errs.Unsupported) || !strings.Contains(err.Error(), want+" is missing") {
			t.Errorf("%v", err)
		}
	}
}

// TestTheDriverIsLeftOpenAfterBatches: the real library may crash when it is
// closed then. A later session takes the driver over and counts as its own.
func TestTheDriverIsLeftOpenAfterBatches(t *testing.T) {
	r := newRig(t, fakegpu.CuFileOptions{})
	b, err := r.NewBatch(2)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.Close(), r.Close()); err != nil {
		t.Fatal(err)
	}
	if n := r.fake.Count("users"); n != 1 {
		t.Errorf("%d users of the driver, expected 1", n)
	}
	r.reopen(t)
	if n := r.fake.Count("users"); n != 1 {
		t.Errorf("%d users after a second session, expected 1", n)
	}
	if err := r.StartCounting(); err != nil {
		t.Errorf("the driver is ours, and its counters are not: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	r.fake.CheckFreed()
}
